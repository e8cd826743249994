"""The page an application for computing time asks for."""
