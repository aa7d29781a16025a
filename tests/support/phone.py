"""What a phone shows: the tables of 3GPP TS 23.038, copied independently of the code."""

# Sections 6.2.1 and 6.2.1.1: the default alphabet, row by row, and the extension table.
ROWS = """
@ £ $ ¥ è é ù ì ò Ç LF Ø ø CR Å å
Δ _ Φ Γ Λ Ω Π Ψ Σ Θ Ξ ESC Æ æ ß É
SP ! " # ¤ % & ' ( ) * + , - . /
0 1 2 3 4 5 6 7 8 9 : ; < = > ?
¡ A B C D E F G H I J K L M N O
P Q R S T U V W X Y Z Ä Ö Ñ Ü §
¿ a b c d e f g h i j k l m n o
p q r s t u v w x y z ä ö ñ ü à
"""
STANDARD = ROWS.split()
EXTENSION = {
    0x0A: "FF",
    0x14: "^",
    0x28: "{",
    0x29: "}",
    0x2F: "\\",
    0x3C: "[",
    0x3D: "~",
    0x3E: "]",
    0x40: "|",
    0x65: "€",
}
NAMED = {"LF": "\n", "CR": "\r", "SP": " ", "FF": "\f"}


def character(name):
    """Return the character for a name in the tables."""
    return NAMED.get(name, name)


def show(octets, coding):
    """Return the text of one part without its header; raise an error for half a character."""
    if coding == 8:
        return octets.decode("utf-16-be")
    if coding == 3:
        return octets.decode("latin-1")
    assert coding == 0
    codes = iter(octets)
    return "".join(
        character(EXTENSION[next(codes)] if code == 0x1B else STANDARD[code]) for code in codes
    )
