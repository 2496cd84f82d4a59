"""Hosts that count visitors and place advertisements. Pages are built without them."""

_TRACKERS = frozenset(
    {
        "adnxs.com",
        "adsrvr.org",
        "amazon-adsystem.com",
        "amplitude.com",
        "bat.bing.com",
        "branch.io",
        "chartbeat.com",
        "clarity.ms",
        "connect.facebook.net",
        "criteo.com",
        "criteo.net",
        "doubleclick.net",
        "facebook.com",
        "fullstory.com",
        "google-analytics.com",
        "googleadservices.com",
        "googlesyndication.com",
        "googletagmanager.com",
        "googletagservices.com",
        "heapanalytics.com",
        "hotjar.com",
        "matomo.cloud",
        "mixpanel.com",
        "mc.yandex.ru",
        "newrelic.com",
        "nr-data.net",
        "optimizely.com",
        "outbrain.com",
        "pubmatic.com",
        "quantserve.com",
        "rubiconproject.com",
        "scorecardresearch.com",
        "segment.com",
        "segment.io",
        "sentry.io",
        "snap.licdn.com",
        "taboola.com",
        "tiktok.com",
    }
)


def is_tracker(name: str) -> bool:
    """Return whether a host is one of them, or below one."""
    labels = name.split(".")
    return any(".".join(labels[at:]) in _TRACKERS for at in range(len(labels) - 1))
