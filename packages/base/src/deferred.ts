export interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T | PromiseLike<T>) => void;
  readonly reject: (reason: unknown) => void;
}

const NOTHING = (): void => undefined;

/** `Promise.withResolvers`, which Node 20 does not have: runners are published for it too. */
export function deferred<T>(): Deferred<T> {
  let resolve: Deferred<T>["resolve"] = NOTHING;
  let reject: Deferred<T>["reject"] = NOTHING;
  const promise = new Promise<T>((...settle) => {
    [resolve, reject] = settle;
  });
  return { promise, resolve, reject };
}
