"""What people write back, taken down from the contract before the code was written.

The contract says by which words a reply is a no; these say what people make of them.
"""

PLAIN_NOES = [
    *("STOP", "stop", "Stop.", "STOP!", "stop!!!", "  stop  ", "\n\nSTOP", "Stop\n", "(stop)"),
    *("STOP STOP", "stop stop stop", "Stop please", "Please stop", "pls stop", "PLS STOP!!"),
    *("STOP now", "Stop now please", "stop, thanks", "Stop. Thank you.", "Thanks, stop"),
    *("stop texting me", "Stop texting me please!", "STOP TEXTING", "please stop texting me now"),
    *("stop messaging me", "stop sending me texts", "Stop sending these texts"),
    *("stop sending me messages please", "stop sending this to me", "stop all", "STOPALL"),
    *("stop all texts", "stop all these messages", "Stop the texts"),
    *("stop any texts to this number", "stop texting my number"),
    *("stop messaging this number please", "I want to stop", "I would like to stop"),
    *("i want this to stop", "I want the texts to stop", "I want these messages to stop now"),
    *("quit", "QUIT!", "quit texting me", "please quit", "Quit messaging me"),
    *("quit sending me these", "end", "END", "End please", "end this", "end all messages"),
    *("please end these texts", "cancel", "Cancel please", "CANCEL", "cancel all"),
    *("cancel texts", "please cancel my texts", "cancel these messages", "unsubscribe"),
    *("Unsubscribe.", "UNSUBSCRIBE ME", "please unsubscribe me", "Unsubscribe me from your list"),
    *("I want to unsubscribe", "I would like to unsubscribe from these messages"),
    *("unsubscribe my number", "un-subscribe me", "optout", "opt out", "opt-out", "OPT OUT"),
    *("Opt me out", "please opt me out", "Opt-out, pls", "I want to opt out"),
    *("opt out from all texts", "opt my number out", "revoke", "REVOKE", "revoke please"),
    *("remove", "Remove me", "please remove me", "remove me from your list"),
    *("please remove me from your list", "Remove my number"),
    *("remove my number from your list please", "remove this number from the list"),
    *("remove us from your list", "take me off", "take me off your list", "take us off"),
    *("Take me off the list please", "please take my number off your list"),
    *("take this number off", "no more", "No more texts", "no more messages please", "NO MORE!"),
    *("no texts any more", "no more texts to this number", "stop, cancel, unsubscribe"),
    "Stop! Remove me! No more!",
    # As phones and other alphabets write it
    *("stóp", "sto\u0301p", "STÖP", "ＳＴＯＰ", "ｓｔｏｐ ｍｅ", "st\u200bop"),
    *("\u200eSTOP\u200f", "st\u00adop texting", "UNSUBSCRİBE", "unsubscrıbe me"),
    *("ı want to stop", "REMOVE\u00a0ME", "stop\u2026", "«STOP»", "“stop”", "STOP 🛑"),
    *("🛑🛑 STOP 🛑🛑", "stop 🙏", "stop 👍🏽", "STOP ❤️", "remove me 👨‍👩‍👧", "1️⃣ stop"),
    *("stop🛑please", "S.T.O.P", "s t o p", "S.T.O.P. texting"),
    # The carriers' own words
    *("𝐒𝐓𝐎𝐏", "🅂🅃🄾🄿", "ⓈⓉⓄⓅ", "🄢🄣🄞🄟", "𝕊𝕋𝕆ℙ 𝒯ℰ𝒳𝒯ℐ𝒩𝒢 𝓜𝓔", "ⓇⒺⓂⓄⓋⒺ ⓂⒺ", "𝗧𝗔𝗞𝗘 𝗠𝗘 𝗢𝗙𝗙", "𝐀𝐑𝐑𝐄̂𝐓"),
    *("ARRÊT", "arrêt", "arre\u0302t", "ARRET", "Arrête", "ARRETT"),
    # With a signature
    *("STOP\n\nSent from my iPhone", "Stop\n--\nJane Doe\n+1 212 555 0123"),
    *("stop texting me\n-- \nJane", "Please stop\r\n\r\nMr Smith", "\n \n\nSTOP\n\nJane"),
    *("Stop\n—\nJane", "stop\n-----\nstop by any time", "take me\noff your list"),
]

MAYBE_NOES = [
    *("No thanks", "no thank you", "No, thanks!", "basta", "¡Basta!", "Alto", "baja", "parar"),
    *("para", "sair", "cancelar", "no más", "No más, por favor", "stopp", "Abmelden bitte"),
    *("afmelden", "unsub", "Lose my number!", "not interested", "Who is this?", "who's this"),
    *("arrêt s'il vous plaît", "parar\n--\nJosé"),
    *("stop by tomorrow", "Stop by the shop any time", "cancel my appointment"),
    *("Please cancel my appointment", "I want to cancel my appointment", "Can I cancel?"),
    *("can you stop", "don't stop", "Don't stop texting me", "never stop"),
    *("please do not remove me", "don't remove me from your list", "do not cancel"),
    *("why did you stop texting me", "when does it end", "The end of March works"),
    *("I quit smoking", "quit my job today", "I'll stop in at 5", "bus stop", "non stop fun"),
    *("will cancel on Monday", "remove the bandage?", "Should I remove the bandage tonight"),
    *("How do I opt out?", "take off at 9", "The plane will take off at 9", "no more seats?"),
    *("no more pain, thanks", "They will revoke my licence", "wrong number"),
    *("Wrong number sorry", "stpo", "sotp", "stoop", "stp", "Stopp", "𝐒𝐓𝐏𝐎", "cancle"),
    *("unsuscribe", "unsubscibe pls", "remvoe me", "stop it", "STOP IT!!"),
    *("stop texting me you idiots", "I'd like to opt out", "Stop or I will call the police"),
    *("stop 2", "STOP 123", "See you Monday\n\nstop", "see you at the stop", "arrêt svp"),
    *("end date?", "cancel that", "remove it", "what is the end date", "no more than 5 people"),
    *("No, I want more", "no I would like more", "you have the wrong number"),
    *("the number is wrong", "ok stop sending flowers lol", "please don't text me any more"),
    *("do not contact me", "wrong person", "this is not my number", "stop?no", "help stop"),
    *("start stop", "STOP\nand call me instead", "I will stop 🙂 promise", "mauvais numéro"),
]

OTHERS = [
    *("yes", "Yes!", "Y", "yes please", "Yes, I'll come", "ok", "OK thanks", "thank you"),
    *("Thanks!", "no", "nope", "NO", "not now", "more"),
    *("more please", "I want more", "more info please", "please", "please text me", "text me"),
    *("opt in", "off", "weekend works", "this weekend", "nonstop", "unstoppable", "endless fun"),
    *("take it", "on & off", "I want to come", "I would like to come", "Me too"),
    *("my number is 212 555 0123", "please send the list", "", " ", "👍", "❤️", "🛑", "...", "?"),
    *("halt", "hör auf", "para mañana", "Can we meet at 5?", "Running late, sorry"),
    *("See you on Tuesday", "Ja, gerne", "Merci !", "Is parking free?", "take the day"),
    *("day off", "opt", "the list", "from me", "Здравствуйте", "予約を確認しました", "نعم", "5"),
    *("12:30", "C", "call me", "--\nJane"),
]

ASKING_FOR_HELP = [
    *("HELP", "help", "Help!", "INFO", "info", "AIDE", "aide", "help me", "Help please"),
    *("HELP ME 🙏", "help\n\nJane", "Info, thanks", "I want help", "help help", "ＨＥＬＰ"),
    *("𝐇𝐄𝐋𝐏", "ınfo", "aide\n--\nJ"),
]

STARTING = [*("START", "𝐒𝐓𝐀𝐑𝐓", "🅂🅃🄰🅁🅃", "start", "Start!", "UNSTOP", "unstop.")]
