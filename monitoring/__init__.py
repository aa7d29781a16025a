"""What the service says of itself: its health, its numbers, its description, and their pages."""
