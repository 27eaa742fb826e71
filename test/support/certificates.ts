/** Certificates of an authority of the test, for TLS; made for each test and deleted with it. */
import { webcrypto } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
// oxlint-disable-next-line import/no-unassigned-import -- It is there for what it does.
import "./no-reflect-metadata.ts";
import {
  BasicConstraintsExtension,
  type Extension,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  X509CertificateGenerator,
} from "@peculiar/x509";
import { makeDirectory } from "./embedded-fixture.ts";

/** A certificate and the key that belongs to it, PEM. */
export interface Identity {
  readonly certificate: string;
  readonly key: string;
}

export interface Authority {
  /** PEM of the authority, for clients that trust it. */
  readonly certificate: string;
  /** For localhost, 127.0.0.1 and ::1. Valid for a day by default. */
  server(validity?: Validity): Promise<Identity>;
  /** For a client. */
  client(name: string): Promise<Identity>;
}

export interface Validity {
  readonly notBefore: Date;
  readonly notAfter: Date;
}

const KEY = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const;
const DAY_MS = 86_400_000;

export async function createAuthority(name = "Test Authority"): Promise<Authority> {
  const keys = await newKeys();
  const root = await X509CertificateGenerator.createSelfSigned(
    {
      name: `CN=${name}`,
      keys,
      ...today(),
      signingAlgorithm: KEY,
      extensions: [
        new BasicConstraintsExtension(true, 1, true),
        new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
      ],
    },
    webcrypto,
  );
  const issue = async (
    subject: string,
    extensions: Extension[],
    validity: Validity = today(),
  ): Promise<Identity> => {
    const own = await newKeys();
    const certificate = await X509CertificateGenerator.create(
      {
        subject: `CN=${subject}`,
        issuer: root.subject,
        publicKey: own.publicKey,
        signingKey: keys.privateKey,
        signingAlgorithm: KEY,
        ...validity,
        extensions: [new BasicConstraintsExtension(false), ...extensions],
      },
      webcrypto,
    );
    const pkcs8 = await webcrypto.subtle.exportKey("pkcs8", own.privateKey);
    return {
      certificate: `${certificate.toString("pem")}\n`,
      key: `${PemConverter.encode(pkcs8, PemConverter.PrivateKeyTag)}\n`,
    };
  };
  const names = new SubjectAlternativeNameExtension([
    { type: "dns", value: "localhost" },
    { type: "ip", value: "127.0.0.1" },
    { type: "ip", value: "::1" },
  ]);
  return {
    certificate: `${root.toString("pem")}\n`,
    server: (validity) =>
      issue("localhost", [names, new ExtendedKeyUsageExtension([SERVER_AUTH])], validity),
    client: (name_) => issue(name_, [new ExtendedKeyUsageExtension([CLIENT_AUTH])]),
  };
}

const SERVER_AUTH = "1.3.6.1.5.5.7.3.1";
const CLIENT_AUTH = "1.3.6.1.5.5.7.3.2";

function today(): Validity {
  const now = Date.now();
  return { notBefore: new Date(now - DAY_MS), notAfter: new Date(now + DAY_MS) };
}

/** Expired for an hour. */
export function expired(): Validity {
  const now = Date.now();
  return { notBefore: new Date(now - DAY_MS), notAfter: new Date(now - DAY_MS / 24) };
}

async function newKeys(): Promise<webcrypto.CryptoKeyPair> {
  return webcrypto.subtle.generateKey(KEY, true, ["sign", "verify"]);
}

/** The files of a service's certificate and key; `write` replaces them. */
export interface CertificateFiles {
  readonly certFile: string;
  readonly keyFile: string;
  readonly caFile: string;
  write(identity: Identity): Promise<void>;
}

/** In a directory that the test's `cleanUp` deletes. */
export async function certificateFiles(
  identity: Identity,
  authority: Authority,
): Promise<CertificateFiles> {
  const directory = await makeDirectory();
  const files = {
    certFile: join(directory, "tls.crt"),
    keyFile: join(directory, "tls.key"),
    caFile: join(directory, "ca.crt"),
  };
  const write = async ({ certificate, key }: Identity): Promise<void> => {
    await writeFile(files.certFile, certificate);
    await writeFile(files.keyFile, key, { mode: 0o600 });
  };
  await write(identity);
  await writeFile(files.caFile, authority.certificate);
  return { ...files, write };
}
