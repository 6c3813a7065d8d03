"""The page at `/`: a chat with the model and a live view of the engine, for a person with a browser."""
