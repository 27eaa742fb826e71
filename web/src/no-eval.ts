/**
 * Zod tries out whether it may compile code, which the page's Content-Security-Policy refuses and
 * reports. The page's first file imports this one, which must not import zod: the bundler may put zod
 * into a file that runs before those that import it.
 */
Reflect.set(globalThis, "__zod_globalConfig", { jitless: true });
