"""What a reply says: a plain no, a start, a call for help, perhaps a no, or something else.

Pure. It never guesses: a text that says anything besides a no is left to people.
"""

import unicodedata
from enum import Enum
from functools import cache

import regex

from texting.carriers import opt_outs


class Meaning(Enum):
    NO = "wants no more texts"
    START = "wants texts again"
    HELP = "asks what this is"
    MAYBE_NO = "may be a no, which people decide"
    OTHER = "something else"


NOES = ("stop", "stopall", "end", "quit", "cancel", "unsubscribe", "optout", "revoke", "remove")
PAIRS = (("opt", "out"), ("take", "off"), ("no", "more"))
WISHES = ("i", "want", "would", "like")
POLITE = (
    *("please", "pls", "thanks", "thank you", "now", "me", "texting", "messaging", "sending"),
    *("texts", "messages", "from", "your", "list", "my", "number", "to", "us", "the", "these"),
    *("this", "all", "any"),
)
HELP = ("help", "info", "aide")
PERHAPS = {
    "English": """
        unsub, opt/opting/opted … out, take/get … name/number off, get/take me/us off/of,
        off … list, delete/erase, removal, discontinue, cease, desist, lose … number, no
        thanks/thx/ty, no thank you, not interested, no interest, no longer, don't/never/not
        … text*/message*/contact*/write*/call*/sms/spam, don't/never/not
        send/bother*/disturb, don't/not want/need …
        text*/message*/sms/this/these/any*/your/more, not opt in, didn't/never/not …
        sign*/subscribe*/ask*/consent*, leave me/us/this alone, go away, get lost, shut up,
        fuck/piss/f off, spam*, scam*, harass*, block/blocking/report/reporting
        you/this/your, had enough, enough already/is, fed up, sick/tired of, who is/r/are
        this/that/it/u/you, who's/who/whos this/dis, how/where … get/got … number,
        wrongnumber, wrong/incorrect …
        number*/num/nr/phone/person/contact/guy/man/woman/address, number/phone …
        wrong/incorrect, not/isn't … number/phone, not him/her/me, nobody/one … that name,
        isn't him/her/me, don't know you/this/who/any*, do i know you
    """,
    "Spanish": """
        alto, baja, basta, paren, pare, para de, parar, deje/deja/dejen de,
        dejar/dejes/dejame/dejenme/déjeme … paz, cancelar, cancela/cancele/cancelen,
        desuscribir*, no … más, ya no quiero, no quiero … mensaje*/sms/recibir, no me
        escriba*/mande*/envie*/llame*/moleste*, no moleste*/molestar, no me interesa, no …
        interesad*, no gracias, quítame, quíteme, quítenme, bórrame, bórreme, bórrenme,
        borra/borre/borren mi, elimina*, elimine*, número … equivocado, equivocado,
        equivocó/equivocaste … número, no … mi/su número, no … conozco, quién es/eres, quién
        habla
    """,
    "Portuguese": """
        sair, parem, descadastr*, remover, remova*, não … mais, não me
        mande*/envie*/escreva*/ligue*/perturbe*, não quero … mensagens/sms/receber, não
        perturbe*, sem interesse, não … interesse/interessad*, não obrigado/obrigada, me
        tira/tire/tirem, tira/tire/tirem … número, apaga/apague/apaguem … número, número
        errado, engano, chega de, quem é, deixe/deixa/deixem … paz
    """,
    "French": """
        arrêt*, stoppe*, désabonne*, désinscri*, résilie*, plus de message*/sms, ne … plus,
        n'écrivez/envoyez plus, pas intéressé*, pas d'intérêt, non merci, supprime*,
        retire*, enleve*, laisse*/fiche*/foute* … tranquille/paix, ça suffit, faux/mauvais
        numéro, erreur de numéro, trompe* de numéro, pas … bon/mon numéro, c'est qui, qui
        est-ce/c'est, qui êtes-vous, qui es-tu
    """,
    "German": """
        stopp, stoppen, abmelde*, abmeldung, abbestellen, austragen, kündige*, beenden,
        löschen, lösche/lösch … nummer, keine … mehr, nicht mehr, kein interesse, nicht
        interessiert, nein danke, hör/hört/hören … auf, aufhören, schluss, lass*/lassen …
        ruhe, nerv*/nervt nicht, widerspreche, widerrufe, falsche … nummer, nummer … falsch,
        falsch verbunden, verwählt, kenne … nicht, nicht … nummer, wer ist das/dort/da, wer
        bist/sind du/sie
    """,
    "Dutch": """
        afmelden, meld … af, uitschrijven, schrijf … uit, opzeggen, geen … meer, niet meer,
        geen interesse, niet geïnteresseerd, nee bedankt, nee dank je/u, hou/houd op,
        hou/houd ermee/hiermee op, stop ermee, laat … rust, verwijder*, verkeerd/fout
        nummer, verkeerde nummer/persoon, niet … nummer, wie is/ben/bent dit/dat/je/u
    """,
    "Italian": """
        cancellami, cancellatemi, cancellare, cancellazione, disiscriv*, annulla, disdire,
        disdetta, rimuov*, toglie*, smette*, smetti*, non … più, non … interessa*, no
        grazie, lascia* … pace, numero sbagliato, sbagliato numero, chi è, chi sei
    """,
    "Other languages": """
        sluta, stoppa, avsluta, avregistrera, afmeld, avmeld, nej tack/tak, nei takk,
        fel/forkert/feil nummer, vem är det, hvem er det/dette, wypisz, rezygnuję, nie
        dziękuję, zły/zly numer, pomyłka, iptal, istemiyorum, yanlış numara, стоп, отпис*,
        отпиш*, хватит, не пишите, не тот номер, 退订, 停止
    """,
}
"""Ways to say no, by language: anywhere in a text, they may be one.

… is up to three words, / is "or", and * any ending.
"""

ALONE = ("para", "chega", "enough", "genug", "genoeg", "wrong", "don't")
"""Words that may be a no if a text contains nothing else."""

POLITE_ELSEWHERE = ("por favor", "gracias", "obrigado", "obrigada", "merci", "bitte", "danke")
POLITE_ELSEWHERE += ("s il vous plait", "grazie", "per favore", "alstublieft", "bedankt")

SHORTEST_MISSPELT = 4  # letters

# Anyone can send 255 parts of any characters: texts are truncated, and matching takes time linear
# in the length

LONGEST_READ = 2_000  # characters that are looked at
LONGEST_PLAIN = 3 * LONGEST_READ  # NFKD turns a Korean letter into up to 3, a ligature into 18
CUT = " etc"  # replaces the rest, which says something besides a no
MARKS = regex.compile(r"(?<=[\p{M}\p{Cf}]{4})[\p{M}\p{Cf}]++")
"""The marks beyond four in a row, which are removed: NFKD sorts a row in quadratic time."""

SIGNATURE = regex.compile(r"^[^\S\n]*+[\p{Pd}\u2212]*+[^\S\n]*+$", regex.MULTILINE)
"""A blank line, or one of dashes."""

EMOJI = regex.compile(r"[0-9#*]\uFE0F?\u20E3|(?!Ⓜ)\p{Extended_Pictographic}")
HIDDEN = regex.compile(r"[\p{M}\p{Cf}]+")  # accents, and characters without width
WORD = regex.compile(r"[^\W_]+")


def _readings(text) -> set[str]:
    """Return the words of a text: punctuation may separate words (stop,please) or not (s.t.o.p).

    Case, accents and emoji are dropped. Each i is dotted, because Turkish has one without, and # is
    read as "number".
    """
    plain = unicodedata.normalize("NFKD", EMOJI.sub(" ", text)).casefold()
    plain = HIDDEN.sub("", plain).replace("ı", "i").replace("#", " number ")[:LONGEST_PLAIN]
    parted = "".join(f"{word} " for word in WORD.findall(plain))
    pieces = ("".join(WORD.findall(each)) for each in plain.split())
    return {parted, "".join(f"{word} " for word in pieces if word)}


# The patterns below match words with a space after each


def _any(words):
    return f"(?:{'|'.join(words)})"


def phrases(written: str) -> list[str]:
    """Return the phrases of a language in PERHAPS."""
    return [" ".join(each.split()) for each in written.split(",")]


def _phrase(written):
    """Return the pattern of a phrase, as PERHAPS writes them."""
    return "".join(r"(?:\w+ ){0,3}?" if each == "…" else _word(each) for each in written.split())


def _word(written):
    readings = (
        word.rstrip() + (r"\w*+ " if each.endswith("*") else " ")
        for each in written.split("/")
        for word in sorted(_readings(each))
    )
    return _any(dict.fromkeys(readings))


# With nothing in between: "no I want more" is not a no
A_NO = _any((*NOES, *(f"{one} (?:{_any(POLITE)} )*+{other}" for one, other in PAIRS)))
AROUND = _any((*POLITE, *WISHES))
PLAIN_NO = regex.compile(f"(?:{AROUND} )*+(?:{A_NO} (?:{AROUND} )*+)++")
AROUND_OTHER = _any((AROUND, *POLITE_ELSEWHERE))
ONLY_A_NO = regex.compile(
    f"(?:{AROUND_OTHER} )*+(?:{_any(map(_word, ALONE))}(?:{AROUND_OTHER} )*+)++"
)
PLAIN_HELP = regex.compile(f"(?:{AROUND} )*+(?:{_any(HELP)} (?:{AROUND} )*+)++")


@cache  # for most processes read no reply, and this takes a tenth of a scheduler's pass
def _has_no():
    return regex.compile(
        rf"\b{_any((*NOES, *opt_outs.STOP))} "
        rf"|\b{_any(f'{one} (?:{AROUND} )*+{other}' for one, other in PAIRS)} "
        rf"|\b{_any(_phrase(each) for some in PERHAPS.values() for each in phrases(some))}"
    )


CORRECT = [
    word
    for word in {*NOES, *opt_outs.STOP, *(word for pair in PAIRS for word in pair), "wrong"}
    if len(word) >= SHORTEST_MISSPELT
]


def preload() -> None:
    """Compile the patterns, before the web server forks."""
    _has_no()


def read(text: str) -> Meaning:
    """Return what a reply means."""
    text = _judged(text)
    if (stop := opt_outs.read(text)) is not None:
        return Meaning.NO if stop else Meaning.START
    readings = _readings(_before_signature(text))
    if any(map(PLAIN_NO.fullmatch, readings)):
        return Meaning.NO
    if any(map(PLAIN_HELP.fullmatch, readings)):
        return Meaning.HELP
    return _suspected(text)


def read_part(text: str) -> Meaning:
    """Return what an incomplete text means: at most that it may be a no."""
    return _suspected(_judged(text))


def _judged(text):
    """Return the beginning of a text, without long rows of marks."""
    text = MARKS.sub("", text).strip()
    return text if len(text) <= LONGEST_READ else text[:LONGEST_READ] + CUT


def _suspected(text):
    if any(map(ONLY_A_NO.fullmatch, _readings(_before_signature(text)))):
        return Meaning.MAYBE_NO
    for words in _readings(text):
        meant = "".join(f"{_corrected(word)} " for word in words.split())
        if _has_no().search(words) or _has_no().search(meant):
            return Meaning.MAYBE_NO
    return Meaning.OTHER


def _before_signature(text):
    """Return the text before the first blank line or line of dashes; skip leading blank lines."""
    lines = "\n".join(text.splitlines())
    return SIGNATURE.split(lines.lstrip(), maxsplit=1)[0]


def _corrected(word):
    """Return the word of a no that this one misspells by one letter, or by two swapped ones."""
    return next((each for each in CORRECT if _are_alike(word, each)), word)


def _are_alike(one, other):
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while one[start : start + 1] == other[start : start + 1] != "":
        start += 1
    one, other = one[start:], other[start:]
    is_other, is_missing, is_more = one[1:] == other[1:], one == other[1:], one[1:] == other
    are_exchanged = one[:2] == other[1::-1] and one[2:] == other[2:]
    return is_other or is_missing or is_more or are_exchanged
