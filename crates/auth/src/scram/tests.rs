use super::*;
use crate::Mechanism;
use proptest::prelude::*;

/// The server of a published conversation: its nonce is not ours to choose, so that the exchange is put together.
fn published(
    mechanism: Mechanism,
    secret: &str,
    salt: &str,
    iterations: u32,
    first: &str,
    nonce: &str,
) -> (String, Exchange) {
    let salt = STANDARD.decode(salt).unwrap();
    let credentials = Credentials::of_secret(mechanism, secret, &salt, iterations);
    let first = ClientFirst::parse(first.as_bytes()).unwrap();
    let (ours, mut exchange) = first.clone().answer(credentials, &[0; 24]);
    let random = STANDARD.encode([0; 24]);
    let message = ours.replace(&random, nonce);
    exchange.signed = exchange.signed.replace(&random, nonce);
    exchange.nonce = exchange.nonce.replace(&random, nonce);
    (message, exchange)
}

#[test]
fn the_conversation_of_rfc_5802() {
    let (message, exchange) = published(
        Mechanism::ScramSha1,
        "pencil",
        "QSXCR+Q6sek8bf92",
        4096,
        "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
    );
    assert_eq!(
        message,
        "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    );
    let last = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=";
    let verdict = exchange.finish(last).unwrap();
    assert_eq!(verdict, Verdict::Proven("v=rmF9pqV8S7suAoZWja4dJRkFsKQ=".into()));
}

#[test]
fn the_conversation_of_rfc_7677() {
    let nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let (message, exchange) = published(
        Mechanism::ScramSha256,
        "pencil",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        4096,
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        nonce,
    );
    assert_eq!(
        message,
        format!("r=rOprNGfwEbeRWgbNEkqO{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    );
    let last = format!("c=biws,r=rOprNGfwEbeRWgbNEkqO{nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    let verdict = exchange.finish(last.as_bytes()).unwrap();
    assert_eq!(
        verdict,
        Verdict::Proven("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".into())
    );
}

/// A client of our own: proves with `secret` against what the server says.
fn prove(mechanism: Mechanism, secret: &str, bare: &str, header: &str, server_first: &str) -> String {
    let field = |name: &str| {
        server_first
            .split(',')
            .find_map(|part| part.strip_prefix(name))
            .unwrap()
    };
    let salt = STANDARD.decode(field("s=")).unwrap();
    let salted = mechanism.stretch(secret.as_bytes(), &salt, field("i=").parse().unwrap());
    let client_key = mechanism.hmac(&salted, b"Client Key");
    let without_proof = format!("c={},r={}", STANDARD.encode(header), field("r="));
    let signed = format!("{bare},{server_first},{without_proof}");
    let signature = mechanism.hmac(&mechanism.hash(&client_key), signed.as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
    format!("{without_proof},p={}", STANDARD.encode(proof))
}

#[test]
fn a_password_in_another_unicode_form_is_the_same_and_a_wrong_one_is_refused() {
    // SASLprep: U+2168 is IX, U+00AD vanishes.
    for (given, secret, right) in [("I\u{ad}X", "IX", true), ("\u{2168}", "IX", true), ("IX", "ix", false)] {
        let mechanism = Mechanism::ScramSha256;
        let credentials = Credentials::of_password(mechanism, "u", given, &[7; 28]).unwrap();
        let first = ClientFirst::parse(b"n,,n=u,r=abc").unwrap();
        let (message, exchange) = first.answer(credentials, &[1; 24]);
        let verdict = exchange
            .finish(prove(mechanism, secret, "n=u,r=abc", "n,,", &message).as_bytes())
            .unwrap();
        assert_eq!(verdict != Verdict::Refused, right, "{given:?}");
    }
    assert!(Credentials::of_password(Mechanism::ScramSha256, "u", "a\u{7}b", &[7; 28]).is_err());
}

#[test]
fn sha_1_takes_the_digest_of_name_and_password() {
    let mechanism = Mechanism::ScramSha1;
    let credentials = Credentials::of_password(mechanism, "user", "pencil", &[3; 16]).unwrap();
    let digested = Credentials::of_secret(mechanism, "1c33006ec1ffd90f9cadcbcc0e118200", &[3; 16], 10_000);
    assert_eq!(credentials, digested);
}

#[test]
fn nobody_proves_to_be_a_user_who_does_not_exist() {
    let pretended = |name| Credentials::pretended(Mechanism::ScramSha256, name, b"secret");
    assert_eq!(pretended("test.a"), pretended("test.a"));
    assert_ne!(pretended("test.a").salt, pretended("test.b").salt);
    let real = Credentials::of_password(Mechanism::ScramSha256, "a", "x", &[7; 28]).unwrap();
    assert_eq!(pretended("test.a").salt.len(), real.salt.len());
    assert_eq!(pretended("test.a").iterations, real.iterations);
    let (message, exchange) = ClientFirst::parse(b"n,,n=a,r=abc")
        .unwrap()
        .answer(pretended("test.a"), &[1; 24]);
    let last = prove(Mechanism::ScramSha256, "", "n=a,r=abc", "n,,", &message);
    assert_eq!(exchange.finish(last.as_bytes()), Ok(Verdict::Refused));
}

#[test]
fn the_header_and_the_nonce_must_come_back_as_they_were() {
    let mechanism = Mechanism::ScramSha256;
    let credentials = Credentials::of_password(mechanism, "u", "p", &[7; 28]).unwrap();
    let start = |header: &str| {
        let first = ClientFirst::parse(format!("{header}n=u,r=abc").as_bytes()).unwrap();
        first.answer(credentials.clone(), &[1; 24])
    };
    // Somebody in between changed "y" to "n", to hide that the server could do better.
    let (message, exchange) = start("n,,");
    let last = prove(mechanism, "p", "n=u,r=abc", "y,,", &message);
    assert_eq!(exchange.finish(last.as_bytes()), Err(ScramError::Mismatch));
    let (message, exchange) = start("y,a=u,");
    let last = prove(mechanism, "p", "n=u,r=abc", "y,a=u,", &message);
    assert!(matches!(
        exchange.clone().finish(last.as_bytes()),
        Ok(Verdict::Proven(_))
    ));
    let elsewhere = last.replace("r=abc", "r=abd");
    assert_eq!(exchange.clone().finish(elsewhere.as_bytes()), Err(ScramError::Mismatch));
    // A nonce that is only the client's part would let an old proof in again.
    let short = last.replace(&STANDARD.encode([1; 24]), "");
    assert_eq!(exchange.finish(short.as_bytes()), Err(ScramError::Mismatch));
}

#[test]
fn messages_that_rfc_5802_does_not_allow_are_refused() {
    let parse = |message: &str| ClientFirst::parse(message.as_bytes()).map(|first| first.user().to_owned());
    assert_eq!(parse("n,,n=a=2Cb=3Dc,r=x"), Ok("a,b=c".into()));
    assert_eq!(parse("n,,n=a=2cb,r=x"), Err(ScramError::Attribute('n')));
    assert_eq!(parse("n,,n=a=,r=x"), Err(ScramError::Attribute('n')));
    assert_eq!(parse("n,,n=,r=x"), Err(ScramError::Attribute('n')));
    assert_eq!(parse("n,,r=x,n=a"), Err(ScramError::Attribute('n')));
    assert_eq!(parse("n,,n=a,r="), Err(ScramError::Attribute('r')));
    assert_eq!(parse("n,,n=a,r=x\u{e9}"), Err(ScramError::Attribute('r')));
    assert_eq!(parse("n,,n=a"), Err(ScramError::Attribute('r')));
    assert_eq!(parse("n,,m=x,n=a,r=x"), Err(ScramError::Extension));
    assert_eq!(parse("n,a=root,n=a,r=x"), Err(ScramError::OtherIdentity));
    assert_eq!(parse("p=tls-unique,,n=a,r=x"), Err(ScramError::ChannelBinding));
    assert_eq!(parse(""), Err(ScramError::ChannelBinding));
    assert_eq!(ClientFirst::parse(b"n,,n=\xff,r=x"), Err(ScramError::NotText));
    let long = |bytes: usize| format!("n,,n={},r=x", "a".repeat(bytes - "n,,n=,r=x".len()));
    assert!(parse(&long(MESSAGE_BYTES_MAX)).is_ok());
    assert_eq!(parse(&long(MESSAGE_BYTES_MAX + 1)), Err(ScramError::TooLong));
}

#[test]
fn stored_credentials_are_checked_before_they_are_believed() {
    let mechanism = Mechanism::ScramSha256;
    let made = Credentials::of_password(mechanism, "u", "p", &[7; 28]).unwrap();
    let (iterations, [salt, stored, server]) = made.to_stored();
    let read =
        |iterations, salt: &str, stored: &str| Credentials::from_stored(mechanism, iterations, salt, stored, &server);
    assert_eq!(read(i64::from(iterations), &salt, &stored), Ok(made));
    for bad in [
        read(0, &salt, &stored),
        read(-1, &salt, &stored),
        read(i64::MAX, &salt, &stored),
        read(15_000, "", &stored),
        read(15_000, "*", &stored),
        read(15_000, &salt, ""),
        read(15_000, &salt, &salt),
    ] {
        assert!(matches!(bad, Err(CredentialsError::Stored { .. })), "{bad:?}");
    }
}

use crate::CredentialsError;

proptest! {
    #[test]
    fn no_message_breaks_the_parsers(first: Vec<u8>, last: Vec<u8>, text in "[ny],(a=[a-z=23CD]*)?,n=[a-z=23CD,]*,r=.*") {
        drop(ClientFirst::parse(&first));
        drop(ClientFirst::parse(text.as_bytes()));
        let credentials = Credentials::pretended(Mechanism::ScramSha1, "a", b"secret");
        let (_, exchange) = ClientFirst::parse(b"n,,n=a,r=x").unwrap().answer(credentials, &[0; 24]);
        let proven = |message: &[u8]| matches!(exchange.clone().finish(message), Ok(Verdict::Proven(_)));
        prop_assert!(!proven(&last));
        prop_assert!(!proven(text.as_bytes()));
    }
}

/// Of several keys any one logs a member in, and the server proves to know that one.
#[test]
fn one_of_several_passwords_will_do() {
    let keys = crate::ClusterKeys::new(["oldoldold", "newnewnew"]).unwrap();
    for mechanism in Mechanism::ALL {
        for (key, is_right) in [("oldoldold", true), ("newnewnew", true), ("neither00", false)] {
            let (first, client) =
                crate::ClientConversation::begin(mechanism, crate::INTERNAL_USER, key, &[1; 24]).unwrap();
            let first = ClientFirst::parse(first.as_bytes()).unwrap();
            let verifiers = keys.verifiers(mechanism, &[3; 16]);
            assert_eq!(verifiers.len(), 2);
            let (server_first, server) = first.answer_any(verifiers, &[2; 24]);
            let (last, proof) = client.prove(server_first.as_bytes()).unwrap();
            match server.finish(last.as_bytes()).unwrap() {
                Verdict::Proven(message) => assert!(is_right && proof.verify(message.as_bytes()).is_ok(), "{key}"),
                Verdict::Refused => assert!(!is_right, "{key}"),
            }
        }
    }
}
