"""What bin/apprise_plugins.py found out about Apprise's plugins; not to be edited."""

VERSION = "2.2.0"  # Apprise's

_SCHEMES = """
46elks amqp amqps apprise apprises aprs atalk azure bark barks betterstack blink1 bluesky brevo
bsky bulksms bulkvs burstsms chanify clickatell clicksend cliq cm d7sms dapnet dbus deltachat
deltachats dingtalk discord dot eight00com elks emby embys enigma2 enigma2s evolution evolutions
exotel fcm feishu firehydrant flock flowtriq flowtriqs fluxer fluxers form forms freemobile gchat
gio github glib gnome goalert goalerts gorush gorushs gotify gotifys groundmail groupme growl
guilded gupshup hassio hassios httpsms humhub humhubs ifttt ilert incidentio infobip irc ircs
jellyfin jellyfins jira join json jsons kakao kakaotalk kaleyra kavenegar kde klr kodi kodis kook
kudosity kumulos lametric lametrics lark lauther lfg line macosx mailersend mailgun mailto mailtos
mastodon mastodons matrix matrixs misskey misskeys mmost mmosts mobilemessage mobilemsg mqtt mqtts
msg91 msgbird ncloud nclouds nctalk nctalks nexmo nostr notica noticas notifiarr notifico notificos
notifyre ntfy ntfys o365 octopush onebot onebots onesignal opsgenie pagerduty pagertree parsep
parseps pbul pinglet pinglets pingram pjet pjets plivo postmark pover prowl psafer psafers push
pushdeer pushdeers pushed pushme pushplus pushward pushy qq qt reddit resend revolt ringc rocket
rockets rsyslog ryver schan sendgrid sendpulse serwersms ses session sessions seven sfr signal
signalgrid signals signl4 simplepush sinch slack smpp smpps smsc smseagle smseagles smsmanager
smsmgr smstunnel smtp2go sns sogs sparkpost spike splunk spugpush spush squadcast stackfield
strmlabs synology synologys syslog telesign telnyx tgram threema toot toots trigv trigvs tweet
twilio twist twitter vapid viber victorops voipms vonage webex wechat wecom wecombot whapi whatsapp
windows workflow workflows wpush wxpusher wxteams x xbmc xbmcs xmatters xml xmls xmpp xmpps youlmk
zalo zcliq zohocliq zoom zulip
"""
_READ_THE_ANSWER = """
atalk gupshup kaleyra klr mobilemessage mobilemsg notifyre octopush serwersms smseagle smseagles
smstunnel voipms whapi
"""

SCHEMES = frozenset(_SCHEMES.split())
"""Every scheme of Apprise's."""
READ_THE_ANSWER = frozenset(_READ_THE_ANSWER.split())
"""Those that text phones, and look at more of the carrier's answer than its HTTP status."""
