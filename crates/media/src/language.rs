//! Turns the language codes of files (ISO 639-2, three letters) into the language tags of
//! playlists and manifests (RFC 5646).

/// Whether a word is a language code of ISO 639-1, or one of ISO 639-2 that has such a code of two letters.
pub fn is_common(code: &str) -> bool {
    let code = code.to_ascii_lowercase();
    SHORT
        .split_ascii_whitespace()
        .filter_map(|pair| pair.split_at_checked(3))
        .any(|(long, short)| code == long || code == short)
}

/// Language tag for a code. `None` where the source names no language (`und`), says that there is
/// no linguistic content (`zxx`), or holds something that is not a code.
pub fn tag(code: [u8; 3]) -> Option<String> {
    if !code.iter().all(u8::is_ascii_lowercase) || code == *b"und" || code == *b"zxx" {
        return None;
    }
    // RFC 5646 2.2.1: the two-letter code where one exists.
    let short = SHORT.split_ascii_whitespace().find_map(|pair| {
        let (long, short) = pair.split_at_checked(3)?;
        (long.as_bytes() == code).then_some(short)
    });
    let long = || code.iter().copied().map(char::from).collect();
    Some(short.map_or_else(long, str::to_owned))
}

/// ISO 639-2 codes that have a two-letter code in ISO 639-1: three letters, then two. Files have
/// those of 639-2/T. What was copied from Matroska may have those of 639-2/B, which come last here.
const SHORT: &str = "\
    aaraa abkab afraf akaak amham araar argan asmas avaav aveae aymay azeaz bakba bambm belbe \
    benbn bisbi bodbo bosbs brebr bulbg catca cescs chach chece chucu chvcv corkw cosco crecr \
    cymcy danda deude divdv dzodz ellel engen epoeo estet euseu eweee faofo fasfa fijfj finfi \
    frafr fryfy fulff glagd glega glggl glvgv grngn gujgu hatht hauha hebhe herhz hinhi hmoho \
    hrvhr hunhu hyehy iboig idoio iiiii ikuiu ileie inaia indid ipkik islis itait javjv jpnja \
    kalkl kankn kasks katka kaukr kazkk khmkm kikki kinrw kirky komkv konkg korko kuakj kurku \
    laolo latla lavlv limli linln litlt ltzlb lublu luglg mahmh malml marmr mkdmk mlgmg mltmt \
    monmn mrimi msams myamy nauna navnv nblnr ndend ndong nepne nldnl nnonn nobnb norno nyany \
    ocioc ojioj orior ormom ossos panpa plipi polpl porpt pusps quequ rohrm ronro runrn rusru \
    sagsg sansa sinsi slksk slvsl smese smosm snasn sndsd somso sotst spaes sqisq srdsc srpsr \
    sswss sunsu swasw swesv tahty tamta tattt telte tgktg tgltl thath tirti tonto tsntn tsots \
    tuktk turtr twitw uigug ukruk urdur uzbuz venve vievi volvo wlnwa wolwo xhoxh yidyi yoryo \
    zhaza zhozh zulzu \
    albsq armhy baqeu burmy chizh czecs dutnl frefr geoka gerde greel iceis macmk maomi mayms \
    perfa rumro slosk tibbo welcy";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_code_is_the_tag() {
        let tag = |code| tag(code);
        assert_eq!(tag(*b"eng").as_deref(), Some("en"));
        assert_eq!(tag(*b"deu").as_deref(), Some("de"));
        assert_eq!(tag(*b"ger").as_deref(), Some("de"));
        assert_eq!(tag(*b"zul").as_deref(), Some("zu"));
        assert_eq!(tag(*b"fil").as_deref(), Some("fil"));
        assert_eq!(
            [tag(*b"und"), tag(*b"zxx"), tag(*b"\0\0\0"), tag(*b"E n")],
            [None, None, None, None]
        );
        assert!(SHORT.split_ascii_whitespace().all(|pair| pair.len() == 5));
    }
}
