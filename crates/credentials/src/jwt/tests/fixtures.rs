//! Keys and tokens of other programs.
//!
//! The keys are by OpenSSL 3.0: `openssl genrsa -out rsa.pem 2048`, `openssl ecparam -name prime256v1 -genkey -noout -out
//! ec.pem`, `openssl genpkey -algorithm ed25519 -out ed.pem`, each followed by `openssl pkey -in X.pem -pubout`, and
//! `openssl req -new -x509 -key ec.pem -subj /CN=issuer -days 36500`. The others are of 1024 bits and on `secp384r1`.
//!
//! The tokens are by PyJWT 2.15: `jwt.encode(claims, key, algorithm=name, headers={"kid": name.lower()})`, where `claims`
//! is `{"iss": "https://issuer.example", "aud": ["headwater", "other"], "sub": "ann", "nbf": 1700000000, "exp":
//! 1700003600, "permissions": [{"actions": ["publish", "play"], "path": "live/ann/*"}, {"actions": ["api"]}]}`.

pub(super) const HS256: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImhzMjU2IiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjpbImhlYWR3YXRlciIsIm90aGVyIl0sInN1YiI6ImFubiIsIm5iZiI6MTcwMDAwMDAwMCwiZXhwIjoxNzAwMDAzNjAwLCJwZXJtaXNzaW9ucyI6W3siYWN0aW9ucyI6WyJwdWJsaXNoIiwicGxheSJdLCJwYXRoIjoibGl2ZS9hbm4vKiJ9LHsiYWN0aW9ucyI6WyJhcGkiXX1dfQ.pKvacF6Wae004S8tacymOZiYlYIHssNjYk4h9x2y8fI";
pub(super) const RS256: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzMjU2IiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjpbImhlYWR3YXRlciIsIm90aGVyIl0sInN1YiI6ImFubiIsIm5iZiI6MTcwMDAwMDAwMCwiZXhwIjoxNzAwMDAzNjAwLCJwZXJtaXNzaW9ucyI6W3siYWN0aW9ucyI6WyJwdWJsaXNoIiwicGxheSJdLCJwYXRoIjoibGl2ZS9hbm4vKiJ9LHsiYWN0aW9ucyI6WyJhcGkiXX1dfQ.H2ts287PAPzboRswIwFhrpsleMVNGdWiSAA4lgUEeNgnBjQLg9m-Xg6kKHHqDN_EycvZIXKgllwlJ_Ig1ufvePQqoQdwvAoc8vEPj2EHXBmrClswTFQWxL2Tx8ToA6Ndo5ynLvLe5RfhYEKDnKQosZnfXnE4CXwNxgKlkyv82GCWdeKeOi_imw_IGVHJS497pJe1PC9UAg4oRmgMBtdiZyRIGumZJeAGfwi95Y3iRjrXzy7IVcUYyn6p85VRMNP8UWsfzKmruPS-mDeBcna3h9-DZ5pa5TSi6mRYGuxg4qylw_jo_d-nhhXTj95yZjPgYYLBjzciO8w_QAfstdRVfg";
pub(super) const ES256: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImVzMjU2IiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjpbImhlYWR3YXRlciIsIm90aGVyIl0sInN1YiI6ImFubiIsIm5iZiI6MTcwMDAwMDAwMCwiZXhwIjoxNzAwMDAzNjAwLCJwZXJtaXNzaW9ucyI6W3siYWN0aW9ucyI6WyJwdWJsaXNoIiwicGxheSJdLCJwYXRoIjoibGl2ZS9hbm4vKiJ9LHsiYWN0aW9ucyI6WyJhcGkiXX1dfQ.MIySdZKEuW6b92QPccUORA_8vJkune4dEP51sDxeBTrZbuyhmBiaKJ2B1jXnblKJdTs9t3PDYvBQgB4Xjl18YA";
pub(super) const EDDSA: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImVkZHNhIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjpbImhlYWR3YXRlciIsIm90aGVyIl0sInN1YiI6ImFubiIsIm5iZiI6MTcwMDAwMDAwMCwiZXhwIjoxNzAwMDAzNjAwLCJwZXJtaXNzaW9ucyI6W3siYWN0aW9ucyI6WyJwdWJsaXNoIiwicGxheSJdLCJwYXRoIjoibGl2ZS9hbm4vKiJ9LHsiYWN0aW9ucyI6WyJhcGkiXX1dfQ.c8r3hVLzt6SIP067XK_sl4jKsmkgunOy1X5GtTCwhxCYQfTkKHZVoFwTd7YuaXEUu5D1CHaZ-YejuI-6oMehBA";
pub(super) const RSA_KEY: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAtKn0Y2t4HBNQHrNZurEO
eVGUp6wtnlm7ElISioqumR90NMzI7wB1E9yexsHMTeNzSNb/cVJ8wGVYJWuZIcrW
0L1OYtCJV/n7gvtXGSJP1N93PBtBCjglWhuOZWyO8/PL2nuvxmR6v2spJxAdm9iv
ywwc02Yf7nawSn3p0lBoXvReWdHXO32SNmuhXK40kAhnhaUxMyR3pfzYLKzB1Naw
epxPs4cxhwwB7OKIWczxdErNKjyTUSRD/PilWrEDRp8+F+cZGwylo6cBiKgjk78g
nA6DhD7atuFhI9rTDDZRB3VmIsJjCP75Y2J3ChkNGJJivS33payk1FUf9s3Kg1FI
cQIDAQAB
-----END PUBLIC KEY-----\n";
pub(super) const EC_KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEMGkjAKSjxlyz+6e/zMzvTK5r4csP
E+yJRjfqn7Jg6sVN9Ae1I4yTooZSCP2iYIyJ8VPxo1gyz1IZb5YBDhNPoA==
-----END PUBLIC KEY-----\n";
pub(super) const EC_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBeDCCAR+gAwIBAgIUWpesTv+uhyV7f8zem989pcM7N5IwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGaXNzdWVyMCAXDTI2MTEyNzE4NDI0OVoYDzIxMjYxMTAzMTg0
MjQ5WjARMQ8wDQYDVQQDDAZpc3N1ZXIwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAQwaSMApKPGXLP7p7/MzO9Mrmvhyw8T7IlGN+qfsmDqxU30B7UjjJOihlII/aJg
jInxU/GjWDLPUhlvlgEOE0+go1MwUTAdBgNVHQ4EFgQU4YrwpwEd4cTKW0L1505K
na0T92MwHwYDVR0jBBgwFoAU4YrwpwEd4cTKW0L1505Kna0T92MwDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiB359JYwOXCpMth0XEO7o59LI1/jq8m
J6ECLDiEqq2SWAIgAlYHTmjknkxcSC9/OBPnTbXey/mA3ExmLBEMfyuczvg=
-----END CERTIFICATE-----\n";
pub(super) const ED_KEY: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA5NbRcQGRX5r1YmPkU6wKKhf/ZNrEHRcStNtxm98jVSk=
-----END PUBLIC KEY-----\n";
pub(super) const SMALL_KEY: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCo0BNJWDA4NF4yfOWpYBVWkmEC
SYJHiYt+ug5brsfrFQC3qZW9TWRegPU9YIkaw074FDtE1/ymIF8sJ10OQm2wagP4
Eiu7vlCvJQWPWTI8D4Ys5xb/61M4BGmBT5U8X/WKIBBhGb512THlcbbV1pO9iA8X
G3r8XBIV1zvPU+eINQIDAQAB
-----END PUBLIC KEY-----\n";
pub(super) const P384_KEY: &str = "-----BEGIN PUBLIC KEY-----
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAERVw6wOB+nIICG3aF5dwprMYao2hOve1d
cvoAkywR+M/zOQ6Xy6NJyKUhYcrpnp6yE4WhF45ZF77Nyv45iKvbQE5xVGm/+czc
JGy7mGEE56xICBKzdBan/H+5E/gjuLEW
-----END PUBLIC KEY-----\n";
/// The RSA key as PyJWT writes it: `RSAAlgorithm.to_jwk`.
pub(super) const RSA_JWK: &str = r#"{"kty": "RSA", "key_ops": ["verify"], "n": "tKn0Y2t4HBNQHrNZurEOeVGUp6wtnlm7ElISioqumR90NMzI7wB1E9yexsHMTeNzSNb_cVJ8wGVYJWuZIcrW0L1OYtCJV_n7gvtXGSJP1N93PBtBCjglWhuOZWyO8_PL2nuvxmR6v2spJxAdm9ivywwc02Yf7nawSn3p0lBoXvReWdHXO32SNmuhXK40kAhnhaUxMyR3pfzYLKzB1NawepxPs4cxhwwB7OKIWczxdErNKjyTUSRD_PilWrEDRp8-F-cZGwylo6cBiKgjk78gnA6DhD7atuFhI9rTDDZRB3VmIsJjCP75Y2J3ChkNGJJivS33payk1FUf9s3Kg1FIcQ", "e": "AQAB"}"#;

/// A key and a token, and what is in the token.
pub(super) struct Vector {
    pub(super) jwk: &'static str,
    pub(super) token: &'static str,
    pub(super) payload: &'static str,
}

const JOE: &str =
    "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}";

/// RFC 7515 A.1 to A.3 and RFC 8037 A.4.
pub(super) const VECTORS: [Vector; 4] = [
    Vector {
        jwk: r#"{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}"#,
        token: "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        payload: JOE,
    },
    Vector {
        jwk: r#"{"kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB"}"#,
        token: "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
        payload: JOE,
    },
    Vector {
        jwk: r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#,
        token: "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
        payload: JOE,
    },
    Vector {
        jwk: r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#,
        token: "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
        payload: "Example of Ed25519 signing",
    },
];
