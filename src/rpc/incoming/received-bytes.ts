/**
 * What requests take of the memory, of all callers together, from their first byte to their answer.
 *
 *   held of a call ──► the first 64 KiB are free ──► the rest is counted ──► bytesMax for all
 *
 * So a small request is never refused for others' large ones. A unary call that wants more than there
 * is gets no room; a push stream waits for it, first come, first served. Streams can have taken all the
 * room with frames that are half there, none of which could ever be completed: so the first of those
 * who wait has the turn, and goes on above the limit, one frame of one stream at a time.
 */
const FREE_BYTES = 64 * 1024;

export class ReceivedBytes {
  readonly #bytesMax: number;
  readonly #waiting = new Map<ReceivedShare, () => void>();
  #heldBytes = 0;
  #countedBytes = 0;
  #turn: ReceivedShare | undefined;

  constructor({ bytesMax }: { readonly bytesMax: number }) {
    this.#bytesMax = bytesMax;
  }

  /** With what is free. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** Much is held, if only by small requests: nobody should be slow. */
  get isPressed(): boolean {
    return this.#heldBytes >= this.#bytesMax;
  }

  share(): ReceivedShare {
    return new ReceivedShare(this);
  }

  /** Of a share, by it. */
  changed(before: number, after: number): void {
    this.#heldBytes += after - before;
    this.#countedBytes += Math.max(0, after - FREE_BYTES) - Math.max(0, before - FREE_BYTES);
    if (after < before && this.#waiting.size > 0) this.#letGo();
  }

  hasRoom(share: ReceivedShare): boolean {
    return (
      share.heldBytes <= FREE_BYTES || this.#countedBytes <= this.#bytesMax || this.#turn === share
    );
  }

  /** Calls `go` when a share that had no room has some, which may be at once. */
  wait(share: ReceivedShare, go: () => void): void {
    this.#waiting.set(share, go);
    this.#letGo();
  }

  /** It has what it waited for, or does not want it any more. */
  leave(share: ReceivedShare): void {
    this.#waiting.delete(share);
    if (this.#turn !== share) return;
    this.#turn = undefined;
    this.#letGo();
  }

  #letGo(): void {
    for (const [share, go] of this.#waiting) {
      if (this.#countedBytes > this.#bytesMax) {
        if (this.#turn !== undefined) return;
        this.#turn = share;
      }
      this.#waiting.delete(share);
      go();
    }
  }
}

/** Of one call. */
export class ReceivedShare {
  readonly #all: ReceivedBytes;
  #heldBytes = 0;

  constructor(all: ReceivedBytes) {
    this.#all = all;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  get hasRoom(): boolean {
    return this.#all.hasRoom(this);
  }

  hold(bytes: number): void {
    const before = this.#heldBytes;
    this.#heldBytes = bytes;
    this.#all.changed(before, bytes);
  }

  wait(go: () => void): void {
    this.#all.wait(this, go);
  }

  leave(): void {
    this.#all.leave(this);
  }

  release(): void {
    this.#all.leave(this);
    this.hold(0);
  }
}
