"""What the create operation is compared with: parse the JSON body and return it."""

from flask import Flask, request

app = Flask(__name__)


@app.post("/v1/text-messages")
def echo():
    return request.get_json(), 201
