//! The languages that a collation may name, with the further orders that some of them have: those of the table
//! "Supported Languages and Locales" of MongoDB's manual.

/// A language and the types of collation that it has beside its usual one, as BCP 47 calls them (`co`).
type Language = (&'static str, &'static [&'static str]);

const LANGUAGES: &[Language] = &[
    ("af", &[]),
    ("am", &[]),
    ("ar", &["compat"]),
    ("as", &[]),
    ("az", &["search"]),
    ("be", &[]),
    ("bg", &[]),
    ("bn", &["trad"]),
    ("bo", &[]),
    ("br", &[]),
    ("bs", &["search"]),
    ("ca", &["search"]),
    ("chr", &[]),
    ("cs", &["search"]),
    ("cy", &[]),
    ("da", &["search"]),
    ("de", &["search", "eor", "phonebk"]),
    ("dsb", &[]),
    ("dz", &[]),
    ("ee", &[]),
    ("el", &[]),
    ("en", &[]),
    ("eo", &[]),
    ("es", &["search", "trad"]),
    ("et", &[]),
    ("fa", &[]),
    ("fi", &["search", "trad"]),
    ("fil", &[]),
    ("fo", &["search"]),
    ("fr", &[]),
    ("ga", &[]),
    ("gl", &["search"]),
    ("gu", &[]),
    ("ha", &[]),
    ("haw", &[]),
    ("he", &["search"]),
    ("hi", &[]),
    ("hr", &["search"]),
    ("hsb", &[]),
    ("hu", &[]),
    ("hy", &[]),
    ("id", &[]),
    ("ig", &[]),
    ("is", &["search"]),
    ("it", &[]),
    ("ja", &["unihan"]),
    ("ka", &[]),
    ("kk", &[]),
    ("kl", &["search"]),
    ("km", &[]),
    ("kn", &[]),
    ("ko", &["search", "searchjl", "unihan"]),
    ("kok", &[]),
    ("ky", &[]),
    ("lb", &[]),
    ("lkt", &[]),
    ("ln", &["phonetic"]),
    ("lo", &[]),
    ("lt", &[]),
    ("lv", &[]),
    ("mk", &[]),
    ("ml", &[]),
    ("mn", &[]),
    ("mr", &[]),
    ("ms", &[]),
    ("mt", &[]),
    ("my", &[]),
    ("nb", &["search"]),
    ("ne", &[]),
    ("nl", &[]),
    ("nn", &["search"]),
    ("om", &[]),
    ("or", &[]),
    ("pa", &[]),
    ("pl", &[]),
    ("ps", &[]),
    ("pt", &[]),
    ("ro", &[]),
    ("ru", &[]),
    ("se", &["search"]),
    ("si", &["dict"]),
    ("sk", &["search"]),
    ("sl", &[]),
    ("smn", &["search"]),
    ("sq", &[]),
    ("sr", &["search"]),
    ("sv", &["search", "standard"]),
    ("sw", &[]),
    ("ta", &[]),
    ("te", &[]),
    ("th", &[]),
    ("to", &[]),
    ("tr", &["search"]),
    ("ug", &[]),
    ("uk", &[]),
    ("ur", &[]),
    ("vi", &["trad"]),
    ("wae", &[]),
    ("yi", &["search"]),
    ("yo", &[]),
    ("zh", &["big5han", "gb2312", "pinyin", "stroke", "unihan", "zhuyin"]),
    ("zu", &[]),
];

/// What ICU calls types of collation, where BCP 47 calls them otherwise.
const TYPES: [(&str, &str); 6] = [
    ("phonebook", "phonebk"),
    ("traditional", "trad"),
    ("gb2312han", "gb2312"),
    ("dictionary", "dict"),
    ("reformed", "standard"),
    ("compat", "compat"),
];

/// Types whose data ICU4X leaves out.
const WITHOUT_DATA: [&str; 4] = ["search", "searchjl", "big5han", "gb2312"];

/// Languages that order letters as CLDR's root does.
const WITH_ROOT_ORDER: [&str; 11] = ["de", "en", "fr", "ga", "id", "it", "lb", "ms", "nl", "pt", "sw"];

/// Whether a locale, as BCP 47 writes it, orders as the root does: such a language, in whatever region, and no type.
pub(crate) fn has_root_order(locale: &str) -> bool {
    let language = locale.split('-').next().unwrap_or_default();
    !locale.contains("-u-") && WITH_ROOT_ORDER.contains(&language)
}

/// What a locale of MongoDB means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// This locale of BCP 47.
    Locale(String),
    /// There is no such locale.
    Unknown,
    /// There is, but no data of it.
    WithoutData,
}

/// Reads an identifier of ICU's form: `language[_Script][_REGION][_VARIANT][@collation=type]`.
pub(crate) fn find(identifier: &str) -> Named {
    let (base, keywords) = identifier.split_once('@').unwrap_or((identifier, ""));
    let mut parts = base.split('_');
    let language = parts.next().unwrap_or_default();
    let Ok(place) = LANGUAGES.binary_search_by_key(&language, |(name, _)| name) else {
        return Named::Unknown;
    };
    let mut locale = language.to_owned();
    for part in parts {
        let is_script = part.len() == 4 && part.bytes().all(|byte| byte.is_ascii_alphabetic());
        let is_region = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_uppercase());
        match part {
            // The only variant that there is: English as computers sort it.
            "POSIX" if locale == "en-US" => locale.push_str("-u-va-posix"),
            _ if is_script || is_region => {
                locale.push('-');
                locale.push_str(part);
            }
            _ => return Named::Unknown,
        }
    }
    if keywords.is_empty() {
        return Named::Locale(locale);
    }
    let Some(of_icu) = keywords.strip_prefix("collation=") else {
        return Named::Unknown;
    };
    let renamed = TYPES.iter().find(|(icu, _)| *icu == of_icu);
    let kind = renamed.map_or(of_icu, |(_, bcp)| bcp);
    match LANGUAGES[place].1.contains(&kind) {
        false => Named::Unknown,
        true if WITHOUT_DATA.contains(&kind) => Named::WithoutData,
        true => Named::Locale(format!("{locale}-u-co-{kind}")),
    }
}

#[cfg(test)]
pub(crate) fn with_root_order() -> impl Iterator<Item = &'static str> {
    WITH_ROOT_ORDER.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_of_icu_are_locales() {
        assert!(LANGUAGES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (identifier, locale) in [
            ("en", "en"),
            ("en_US", "en-US"),
            ("fr_CA", "fr-CA"),
            ("sr_Latn", "sr-Latn"),
            ("zh_Hant_TW", "zh-Hant-TW"),
            ("de@collation=phonebook", "de-u-co-phonebk"),
            ("de_AT@collation=phonebook", "de-AT-u-co-phonebk"),
            ("zh@collation=stroke", "zh-u-co-stroke"),
        ] {
            assert_eq!(find(identifier), Named::Locale(locale.to_owned()), "{identifier}");
        }
        for unknown in [
            "",
            "xx",
            "EN",
            "en-US",
            "en_us",
            "en_USA",
            "en@collation=phonebook",
            "de@x=y",
            "en_US_x",
        ] {
            assert_eq!(find(unknown), Named::Unknown, "{unknown}");
        }
        assert_eq!(find("de@collation=search"), Named::WithoutData);
    }
}
