"""Models, data on the device and the loop that trains."""
