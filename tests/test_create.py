"""POST /v1/text-messages: what is answered, and what is kept."""

from conftest import SUNDAY_NIGHT, TUESDAY_NOON


def test_inside_business_hours_the_message_is_queued(post, at):
    at(TUESDAY_NOON)
    response = post()
    assert response.status_code == 201
    assert response.json["status"] == "queued"


def test_outside_business_hours_the_message_waits_for_opening(post, at):
    at(SUNDAY_NIGHT)
    body = post().json
    assert body["status"] == "scheduled"
    assert body["scheduled_send_date"] == "2026-03-02T14:00:00.000Z"
