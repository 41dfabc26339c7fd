//! Amounts of memory as Docker's client reads them: a number with a letter.

/// Bytes of `512m`, `1g`, `64MiB`, `1.5g` or a plain number of bytes.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let scale: u64 = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" if unit != "ib" && unit != "i" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let bytes = number.parse::<f64>().ok()? * scale as f64;
    (bytes.is_finite() && bytes < u64::MAX as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_with_their_units() {
        for (text, expected) in [
            ("512m", Some(512 << 20)),
            ("1g", Some(1 << 30)),
            ("1.5G", Some(3 << 29)),
            ("64MiB", Some(64 << 20)),
            ("64mb", Some(64 << 20)),
            ("1048576", Some(1 << 20)),
            ("10b", Some(10)),
            ("5k", Some(5120)),
            ("", None),
            ("m", None),
            ("-1", None),
            ("5x", None),
            ("5ib", None),
            ("1.2.3g", None),
            ("99999999999999999999g", None),
        ] {
            assert_eq!(bytes(text), expected, "{text:?}");
        }
    }
}
