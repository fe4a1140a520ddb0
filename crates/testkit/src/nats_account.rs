use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

/// An account of NATS, which has an operator of its own.
#[derive(Debug)]
pub struct NatsAccount {
    operator: KeyPair,
    account: KeyPair,
}

impl NatsAccount {
    /// Makes keys for an operator and an account.
    #[expect(clippy::new_without_default, reason = "each has keys of its own")]
    pub fn new() -> Self {
        Self { operator: KeyPair::new_operator(), account: KeyPair::new_account() }
    }

    /// The configuration of a server that lets in only users of this account. See [`Nats::start_guarded`].
    ///
    /// [`Nats::start_guarded`]: crate::Nats::start_guarded
    pub fn access(&self) -> String {
        let Self { operator, account } = self;
        let system = KeyPair::new_account();
        let told = jwt(operator, operator, &json!({"type": "operator", "version": 2}));
        let limited = |storage: i32| {
            let names = ["subs", "conn", "leaf", "imports", "exports", "data", "payload"];
            let mut limits =
                json!({"wildcards": true, "mem_storage": storage, "disk_storage": storage});
            names.iter().for_each(|name| limits[name] = json!(-1));
            limits["streams"] = json!(storage);
            limits["consumer"] = json!(storage);
            json!({"limits": limits, "type": "account", "version": 2})
        };
        let accounts = [(account, -1), (&system, 0)].map(|(account, storage)| {
            format!("{}: {}", account.public_key(), jwt(operator, account, &limited(storage)))
        });
        let (accounts, system) = (accounts.join("\n"), system.public_key());
        format!(
            "operator: {told}\nsystem_account: {system}\nresolver: MEMORY\nresolver_preload: {{\n{accounts}\n}}\n"
        )
    }

    /// A file of credentials, those of a new user.
    pub fn credentials(&self) -> String {
        let user = KeyPair::new_user();
        let limits = json!({"subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2});
        let (jwt, seed) = (jwt(&self.account, &user, &limits), seed(&user));
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }
}

fn seed(user: &KeyPair) -> String {
    user.seed().expect("a key of our own")
}

/// Says something of `subject`, signed by `issuer`.
fn jwt(issuer: &KeyPair, subject: &KeyPair, nats: &Value) -> String {
    let encoded = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let (issued_by, about) = (issuer.public_key(), subject.public_key());
    let claims = json!({"iss": issued_by, "sub": about, "iat": 0, "jti": about, "nats": nats});
    let head = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let signed = format!("{}.{}", encoded(&head), encoded(&claims));
    let signature = issuer.sign(signed.as_bytes()).expect("a key of our own");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}
