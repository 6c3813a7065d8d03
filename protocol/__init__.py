"""The wire between the engine and its clients: messages, codec, endpoints; imports neither side."""
