"""Load by locust: users who ask one after the other, each over a connection of its own that stays open."""

from pathlib import Path

from locust import FastHttpUser, constant, task

BODY = Path(__file__).with_name("request.json").read_bytes()


class Caller(FastHttpUser):
    wait_time = constant(0)

    @task
    def predict(self) -> None:
        self.client.post("/v1/models/digits:predict", data=BODY, headers={"Content-Type": "application/json"})
