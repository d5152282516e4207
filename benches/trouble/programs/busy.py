import json

number = 0
while True:
    number += 1
    values = [{"key": i, "text": str(i * number)} for i in range(2000)]
    json.loads(json.dumps(sorted(values, key=lambda value: value["text"])))
