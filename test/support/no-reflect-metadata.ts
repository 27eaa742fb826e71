/**
 * @peculiar/x509 loads tsyringe, which requires a polyfill of Reflect's metadata although none of it is
 * used: this module satisfies the check. Import it first.
 */
Object.assign(Reflect, {
  getMetadata: () => undefined,
  getOwnMetadata: () => undefined,
  defineMetadata: () => undefined,
});
