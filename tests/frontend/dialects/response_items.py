"""Items of a short Responses conversation about the weather."""

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]}
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}'}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Rain."}]}
