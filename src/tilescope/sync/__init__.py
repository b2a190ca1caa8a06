"""The synchronization engine: events, vector clocks, shadow memory, data races, all orders."""
