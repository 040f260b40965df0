//! Pictures with a location, as other programs read them: the location is removed, and nothing else changed.

use std::path::Path;
use std::process::Command;

use shunt_policy::redact::{Edits, location};

fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("-version").stdin(std::process::Stdio::null()).output().is_ok();
    assert!(found || std::env::var_os("CI").is_none(), "{tool} is not installed: run tests/setup");
    found
}

fn run(tool: &str, args: &[&str]) -> String {
    let out = Command::new(tool).args(args).output().unwrap();
    assert!(out.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Returns the metadata of a file, except that of the file system.
fn tags(path: &Path) -> Vec<String> {
    let args =
        ["-a", "-G1", "-s", "-n", "-e", "--System:all", "--ExifTool:ExifToolVersion", "--CurrentIPTCDigest"];
    let args: Vec<&str> = args.into_iter().chain([path.to_str().unwrap()]).collect();
    run("exiftool", &args).lines().map(str::to_owned).collect()
}

const LOCATION_PREFIXES: [&str; 8] =
    ["GPS", "City", "Country", "Location", "State", "Sub-location", "Province", "Sublocation"];

fn is_place(tag: &str) -> bool {
    let name = tag.split(']').nth(1).unwrap_or_default().trim_start();
    LOCATION_PREFIXES.iter().any(|location| name.starts_with(location)) || tag.starts_with("[GPS]")
}

/// Strings that reveal a location in these tests.
const SECRETS: [&str; 4] = ["Leipzig", "Saxony", "Germany", "Markt"];

fn blanked(path: &Path) -> Edits {
    let file = std::fs::File::open(path).unwrap();
    let edits = location(&file).unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let length = bytes.len();
    edits.apply(0, &mut bytes);
    assert_eq!(bytes.len(), length);
    for secret in SECRETS {
        assert!(
            !bytes.windows(secret.len()).any(|window| window == secret.as_bytes()),
            "{secret} in {path:?}"
        );
    }
    let seen = path.with_file_name(format!("seen-{}", path.file_name().unwrap().to_str().unwrap()));
    std::fs::write(&seen, bytes).unwrap();
    let (before, after) = (tags(path), tags(&seen));
    assert!(before.iter().any(|tag| is_place(tag)), "no location in {before:#?}");
    let rest: Vec<_> = before.iter().filter(|tag| !is_place(tag)).collect();
    // A redacted IPTC record remains, filled with spaces.
    let is_blank = |tag: &str| tag.split_once(": ").is_none_or(|(_, value)| value.trim().is_empty());
    let left: Vec<_> = after.iter().filter(|tag| !(is_place(tag) && is_blank(tag))).collect();
    assert_eq!(left, rest, "{path:?}");
    edits
}

fn write_place(path: &Path, big_endian: bool) {
    let path = path.to_str().unwrap();
    let order = if big_endian { "MM" } else { "II" };
    let args = [
        "-overwrite_original",
        "-q",
        "-q",
        &format!("-ExifByteOrder={order}"),
        "-GPSLatitude=51.34",
        "-GPSLatitudeRef=N",
        "-GPSLongitude=12.37",
        "-GPSLongitudeRef=E",
        "-GPSAltitude=113",
        "-GPSDateStamp=2024:05:01",
        "-Make=Maker",
        "-Model=Model 7",
        "-DateTimeOriginal=2024:05:01 10:00:00",
        "-Artist=Somebody",
        "-ISO=200",
        "-XMP:GPSLatitude=51.34",
        "-XMP:GPSLongitude=12.37",
        "-XMP:City=Leipzig",
        "-XMP:State=Saxony",
        "-XMP:Country=Germany",
        "-XMP-iptcCore:Location=Markt 1",
        "-XMP-iptcExt:LocationShownCity=Leipzig",
        "-XMP:Title=A title",
        "-XMP:Rating=4",
        "-XMP:Subject=one",
        "-XMP:Subject=two",
        path,
    ];
    run("exiftool", &args);
}

/// Builds a colourful test picture as PPM.
fn colours() -> (u32, u32, Vec<u8>) {
    let (width, height) = (96, 64);
    let pixel = |n: u32| [(n * 7) as u8, (n / width * 3) as u8, 90];
    (width, height, (0..width * height).flat_map(pixel).collect())
}

fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut chunk = (data.len() as u32).to_be_bytes().to_vec();
    chunk.extend(kind);
    chunk.extend(data);
    chunk.extend(crc32fast::hash(&[&kind[..], data].concat()).to_be_bytes());
    chunk
}

fn picture(dir: &Path, name: &str) -> std::path::PathBuf {
    let path = dir.join(name);
    let (width, height, pixels) = colours();
    if name.ends_with(".jpg") {
        let ppm = dir.join("colours.ppm");
        std::fs::write(&ppm, [format!("P6 {width} {height} 255\n").as_bytes(), &pixels].concat()).unwrap();
        run("cjpeg", &["-outfile", path.to_str().unwrap(), ppm.to_str().unwrap()]);
        return path;
    }
    let head = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    let lines: Vec<u8> = pixels.chunks(3 * width as usize).flat_map(|line| [&[0], line].concat()).collect();
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&lines, 6);
    let chunks = [chunk(b"IHDR", &head), chunk(b"IDAT", &packed), chunk(b"IEND", b"")].concat();
    std::fs::write(&path, [&b"\x89PNG\r\n\x1a\n"[..], &chunks].concat()).unwrap();
    path
}

/// Builds a HEIC picture, with or without a location.
fn heic(dir: &Path, placed: bool) -> std::path::PathBuf {
    let (jpeg, path) = (picture(dir, "from.jpg"), dir.join("a.heic"));
    if placed {
        write_place(&jpeg, true);
    }
    run("heif-enc", &["-q", "50", "-o", path.to_str().unwrap(), jpeg.to_str().unwrap()]);
    if placed {
        write_place(&path, false);
    }
    path
}

/// Builds a PNG picture with these chunks after its header, which has 13 bytes.
fn with_chunks(dir: &Path, name: &str, chunks: &[u8]) -> std::path::PathBuf {
    let path = picture(dir, name);
    let png = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&png[..33], chunks, &png[33..]].concat()).unwrap();
    path
}

/// Returns the decoded image data. For PNG it verifies every checksum.
fn pixels(path: &Path) -> Vec<u8> {
    if path.extension().is_some_and(|kind| kind == "jpg") {
        let out = path.with_extension("ppm");
        run("djpeg", &["-outfile", out.to_str().unwrap(), path.to_str().unwrap()]);
        return std::fs::read(out).unwrap();
    }
    let png = std::fs::read(path).unwrap();
    let (mut at, mut data) = (8, Vec::new());
    while at < png.len() {
        let length = u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        let (kind, rest) = png[at + 4..].split_at(4);
        assert_eq!(chunk(kind.try_into().unwrap(), &rest[..length]), png[at..at + length + 12], "{path:?}");
        if kind == b"IDAT" {
            data.extend(&rest[..length]);
        }
        at += length + 12;
    }
    miniz_oxide::inflate::decompress_to_vec_zlib(&data).unwrap()
}

fn looks_the_same(path: &Path) {
    let seen = path.with_file_name(format!("seen-{}", path.file_name().unwrap().to_str().unwrap()));
    assert_eq!(pixels(path), pixels(&seen));
}

#[test]
fn jpeg_loses_its_place_only() {
    if !has("exiftool") || !has("cjpeg") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (name, big_endian) in [("a.jpg", false), ("b.jpg", true)] {
        let path = picture(dir.path(), name);
        write_place(&path, big_endian);
        let iptc = ["-IPTC:City=Leipzig", "-IPTC:Country-PrimaryLocationName=Germany", "-IPTC:Keywords=k"];
        let args = ["-overwrite_original", "-q"].into_iter().chain(iptc).chain([path.to_str().unwrap()]);
        run("exiftool", &args.collect::<Vec<_>>());
        assert!(!blanked(&path).is_empty());
        looks_the_same(&path);
    }
}

#[test]
fn a_long_xmp_packet_in_several_segments_loses_its_place() {
    if !has("exiftool") || !has("cjpeg") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = picture(dir.path(), "long.jpg");
    write_place(&path, false);
    let long = "x".repeat(200_000);
    let file = dir.path().join("args");
    std::fs::write(&file, format!("-XMP-dc:Description={long}\n")).unwrap();
    run(
        "exiftool",
        &["-overwrite_original", "-q", "-q", "-@", file.to_str().unwrap(), path.to_str().unwrap()],
    );
    blanked(&path);
}

#[test]
fn png_loses_its_place_only() {
    if !has("exiftool") || !has("cjpeg") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = picture(dir.path(), "a.png");
    write_place(&path, true);
    assert!(!blanked(&path).is_empty());
    looks_the_same(&path);
    // Compressed text as well.
    let path = picture(dir.path(), "packed.png");
    write_place(&path, false);
    let path = path.to_str().unwrap();
    run(
        "exiftool",
        &["-overwrite_original", "-q", "-z", "-api", "Compress=1", "-XMP:Title=Another title", path],
    );
    blanked(Path::new(path));
    looks_the_same(Path::new(path));
}

#[test]
fn profiles_in_hexadecimal_digits_lose_their_place() {
    if !has("exiftool") || !has("cjpeg") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let jpeg = picture(dir.path(), "from.jpg");
    write_place(&jpeg, true);
    let exif = std::fs::read(&jpeg).unwrap();
    let start = exif.windows(6).position(|window| window == b"Exif\0\0").unwrap();
    let length = usize::from(u16::from_be_bytes([exif[start - 2], exif[start - 1]])) - 2;
    let profile = &exif[start..start + length];
    let digits: Vec<String> =
        profile.chunks(36).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    let text = format!("\nexif\n{:8}\n{}\n", profile.len(), digits.join("\n"));
    for packed in [false, true] {
        let (kind, mut data): (&[u8; 4], Vec<u8>) = match packed {
            false => (b"tEXt", b"Raw profile type exif\0".to_vec()),
            true => (b"zTXt", b"Raw profile type exif\0\0".to_vec()),
        };
        match packed {
            false => data.extend(text.as_bytes()),
            true => data.extend(miniz_oxide::deflate::compress_to_vec_zlib(text.as_bytes(), 6)),
        }
        let path = with_chunks(dir.path(), &format!("hex-{packed}.png"), &chunk(kind, &data));
        assert!(!blanked(&path).is_empty());
        looks_the_same(&path);
    }
}

#[test]
fn heic_loses_its_place_only() {
    if !has("exiftool") || !has("cjpeg") || !has("heif-enc") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = heic(dir.path(), true);
    assert!(!blanked(&path).is_empty());
    let decode = |name: &str| {
        let out = dir.path().join(format!("{name}.png"));
        run("heif-convert", &[dir.path().join(name).to_str().unwrap(), out.to_str().unwrap()]);
        pixels(&out)
    };
    assert_eq!(decode("a.heic"), decode("seen-a.heic"));
}

fn box_of(kind: &[u8; 4], contents: &[u8]) -> Vec<u8> {
    [&(contents.len() as u32 + 8).to_be_bytes()[..], kind, contents].concat()
}

/// Builds a film that stores its location in every known way.
fn film() -> Vec<u8> {
    let location = box_of(b"udta", &box_of(b"\xa9xyz", b"\0\x12\x15\xc7+51.5033-000.1277/"));
    let keys = box_of(b"meta", b"com.apple.quicktime.location.ISO6709 +51.5033-000.1277/");
    let track = box_of(b"trak", &[box_of(b"tkhd", b"a track"), location.clone(), keys.clone()].concat());
    let movie = box_of(b"moov", &[box_of(b"mvhd", b"a film"), track, location, keys].concat());
    let xmp = box_of(b"uuid", b"\xbe\x7a\xcf\xcb\x97\xa9\x42\xe8 exif:GPSLatitude=51.5033");
    [box_of(b"ftyp", b"isom\0\0\0\0isommp42"), box_of(b"mdat", &[7; 5000]), movie, xmp].concat()
}

fn count(bytes: &[u8], word: &[u8]) -> usize {
    bytes.windows(word.len()).filter(|window| *window == word).count()
}

#[test]
fn films_and_pictures_behind_a_picture_lose_their_place() {
    if !has("exiftool") || !has("cjpeg") || !has("heif-enc") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let jpeg = picture(dir.path(), "a.jpg");
    let plain = std::fs::read(&jpeg).unwrap();
    let placed = picture(dir.path(), "b.jpg");
    write_place(&placed, false);
    let placed = std::fs::read(&placed).unwrap();
    let heic = [std::fs::read(heic(dir.path(), false)).unwrap(), box_of(b"mpvd", &film())].concat();
    // A film that crosses the boundary of two search windows.
    let far = [&plain[..], &vec![0; (1 << 20) - plain.len() - 6]].concat();
    for (whole, films, pictures) in [
        ([&plain[..], &film()].concat(), 1, 0),
        ([&far[..], &film(), b"a trailer", &film()].concat(), 2, 0),
        ([&plain[..], &placed, &film(), &placed].concat(), 1, 2),
        (heic, 1, 0),
    ] {
        let edits = location(&&whole[..]).unwrap();
        let mut seen = whole.clone();
        edits.apply(0, &mut seen);
        assert_eq!(count(&whole, b"51.5033"), 5 * films);
        assert_eq!((count(&seen, b"51.5033"), count(&seen, b"Leipzig")), (0, 0));
        // The film's playback data is complete, and so are the other metadata of the pictures.
        assert_eq!((count(&seen, b"a track"), count(&seen, b"a film")), (films, films));
        assert_eq!(count(&seen, &[7; 5000]), films);
        assert_eq!(count(&seen, b"Model 7"), pictures);
        assert_eq!(count(&seen, b"free"), count(&whole, b"free") + 5 * films);
    }
}

#[test]
fn text_of_png_that_names_a_place_is_blank() {
    if !has("cjpeg") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(b"51/1, 20/1, 24/1", 6);
    let packed = [&b"exif:GPSLongitude\0\0"[..], &packed].concat();
    let texts = [
        chunk(b"tEXt", b"exif:GPSLatitude\x0051/1, 20/1, 24/1"),
        chunk(b"iTXt", b"Location\0\0\0en\0\0Leipzig"),
        chunk(b"zTXt", &packed),
        chunk(b"tEXt", b"Comment\0a comment"),
    ];
    let path = with_chunks(dir.path(), "text.png", &texts.concat());
    let mut seen = std::fs::read(&path).unwrap();
    location(&std::fs::File::open(&path).unwrap()).unwrap().apply(0, &mut seen);
    assert_eq!((count(&seen, b"51/1"), count(&seen, b"Leipzig"), count(&seen, &packed)), (0, 0, 0));
    assert_eq!(count(&seen, b"a comment"), 1);
    let seen_path = dir.path().join("seen-text.png");
    std::fs::write(&seen_path, seen).unwrap();
    looks_the_same(&path);
}

#[test]
fn exif_of_a_heic_that_begins_nowhere_is_blanked_as_a_whole() {
    if !has("exiftool") || !has("cjpeg") || !has("heif-enc") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = heic(dir.path(), true);
    let file = std::fs::read(&path).unwrap();
    // The offset of the directories precedes them.
    let exif = file.windows(4).rposition(|window| window == b"II*\0" || window == b"MM\0*").unwrap();
    for offset in [7u32, 4000, 0xffff_ffff] {
        let mut file = file.clone();
        file[exif - 4..exif].copy_from_slice(&offset.to_be_bytes());
        assert_eq!(count(&file, b"Model 7"), 1);
        let edits = location(&&file[..]).unwrap();
        edits.apply(0, &mut file);
        assert_eq!(count(&file, b"Model 7"), 0, "{offset}");
    }
}

#[test]
fn pictures_without_a_place_are_left_alone() {
    if !has("cjpeg") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.jpg", "a.png"] {
        let file = std::fs::File::open(picture(dir.path(), name)).unwrap();
        assert!(location(&file).unwrap().is_empty(), "{name}");
    }
}
