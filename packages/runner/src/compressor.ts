/** The compressor, for runners and browsers; `docs/compression.md` is the guide. */
export * from "@session-ledger/compressor";
