"""Money as carriers tell it: the prices of texts, and the balance of an account."""

import re
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

FINEST = Decimal("1e-8")  # Vonage tells eight decimal places
MOST = 100_000  # for a text, in any currency, so that sums fit into 64 bits


class Money(NamedTuple):
    """An exact amount, and its currency (ISO 4217) if that was told."""

    amount: Decimal
    currency: str | None

    def __str__(self):
        return plain(self.amount) + (f" {self.currency}" if self.currency else "")


class Priced(str):
    """A reference with the price that came with it; empty if no reference came."""

    price: Money

    @classmethod
    def of(cls, reference: str | None, price: Money | None) -> str | None:
        """Return a reference with a price, or as it is if there is none."""
        if price is None:
            return reference
        priced = cls(reference or "")
        priced.price = price
        return priced


def money(amount: object, currency: object) -> Money | None:
    """Return an amount that a carrier told, to eight decimal places; None if it is unusable."""
    try:
        exact = Decimal(str(amount)).quantize(FINEST)
    except InvalidOperation:
        return None
    is_code = isinstance(currency, str) and re.fullmatch("[A-Za-z]{3}", currency)
    return Money(exact, currency.upper() if is_code else None) if exact.is_finite() else None


def price(amount: object, currency: object) -> Money | None:
    """Return the price of a text, which Twilio tells as a negative amount."""
    told = money(amount, currency)
    return Money(abs(told.amount), told.currency) if told and abs(told.amount) < MOST else None


def plain(amount: Decimal) -> str:
    """Write an amount with no more decimal places than it needs: 0.0333, 12."""
    return f"{amount.normalize():f}"
