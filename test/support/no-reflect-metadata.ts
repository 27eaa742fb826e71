/**
 * @peculiar/x509 comes with tsyringe, which asks for a polyfill of Reflect's metadata as it is loaded and
 * then needs none of it: this says so. To be imported before it.
 */
Object.assign(Reflect, {
  getMetadata: () => undefined,
  getOwnMetadata: () => undefined,
  defineMetadata: () => undefined,
});
