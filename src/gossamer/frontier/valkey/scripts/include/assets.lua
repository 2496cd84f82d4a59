-- Assets: files that pages embed or link. They are queued under this name instead of a spider's, and do not count in
-- limits of pages, so they are still fetched when the page budget of their crawl is used up.
-- Must hold: the name, which is part of stored keys; model/assets.py has the same.
local ASSETS = "gossamer.assets"
