"""What more nodes will bring, from one node that was measured."""
