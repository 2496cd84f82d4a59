"""Path extensions that discovered links are not followed to unless a crawl says otherwise: what is never a page."""

_ARCHIVES = """
7z 7zip ace apk appimage appx arj br bz2 cab cpio deb dmg egg gz img iso jar lha lz lz4 lzh lzma msix pkg rar rpm sit
sitx snap squashfs tar tbz tbz2 tgz txz war whl xapk xpi xz z zip zipx zst
"""

_IMAGES = """
ai apng avif bmp cdr cr2 cur dng drw dwg dxf eps exr gif heic heif icns ico jfif jp2 jpe jpeg jpg jxl mng nef odg orf
pbm pct pcx pgm png pnm ppm ps psd psp pst svg svgz tga tif tiff webp wmf xbm xcf xpm
"""

_AUDIO = """
aac ac3 aif aiff alac amr ape caf flac m3u m3u8 m4a m4b mid midi mka mp2 mp3 mpa oga ogg opus pls ra ram snd spx wav
wma wv
"""

_VIDEO = """
3g2 3gp asf asx avi f4v flv m1v m2ts m2v m4v mk3d mkv mov mp4 mpe mpeg mpg mpv mts ogm ogv qt rm rmvb srt swf ts vob
vtt webm wmv
"""

_DOCUMENTS = """
azw azw3 cbr cbz csv djv djvu doc docb docm docx dot dotm dotx epub fb2 ics mdb mobi mpp odb odc odf odp ods odt ott
oxps pdf pot potm potx pps ppsm ppsx ppt pptm pptx rtf sxw tsv vcf vsd vsdx wpd wps xls xlsb xlsm xlsx xlt xltm xltx
xps
"""

_FONTS = "eot fon otf ttc ttf woff woff2"

_PARTS_OF_PAGES = "atom css less map mjs js rss scss wasm webmanifest"

_PROGRAMS_AND_DATA = """
accdb asc bak bat bin blend bz cer class cmd cpl crt crx dat db db3 dbf der dll dylib elf exe feather fit fits gpx h5
hdf5 hta kml kmz lnk lock md5 msi msp msu ninja npy npz obj onnx ova ovf p12 parquet pcap pdb pem pfx pickle pkl pt
pyc pyd qcow2 rb reg scr sh sha1 sha256 sha512 shp sig so sql sqlite sqlite3 stl sys tmp torrent vbs vdi vhd vhdx vmdk
wim
"""

DENIED_EXTENSIONS: frozenset[str] = frozenset(
    " ".join((_ARCHIVES, _IMAGES, _AUDIO, _VIDEO, _DOCUMENTS, _FONTS, _PARTS_OF_PAGES, _PROGRAMS_AND_DATA)).split()
)
"""Lower case, without dot. Archives, pictures, sound, films, office and book formats, fonts, parts of pages, programs.

Not in it, because they can be pages or lead to some: xml, json, txt, md, and the suffixes of programs that write pages
(php, asp, aspx, jsp, cgi, do, pl, py); nor com and au, because paths that end in somebody's host name are common.
"""
