"""How the service is doing, and its interface description: health, metrics, pages."""
