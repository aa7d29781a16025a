"""What the create operation is compared with: parse the JSON body and return it."""

from flask import Flask, request

from app import create_app

app = Flask(__name__)
app.extensions |= create_app().extensions  # which gunicorn.conf.py reads and sets


@app.post("/v1/text-messages")
def echo():
    return request.get_json(), 201
