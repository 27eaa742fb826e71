/**
 * Zod tries whether it may compile code, which the page's Content-Security-Policy refuses and reports.
 * This file must not import zod: the bundler may run zod before the files that import it.
 */
Reflect.set(globalThis, "__zod_globalConfig", { jitless: true });
