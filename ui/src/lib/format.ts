// Figures as people read them. Every function names its unit; none rounds a verdict into being.

const GIB = 2 ** 30;
const MIB = 2 ** 20;
const KIB = 2 ** 10;

/** Bytes in binary units. */
export function bytes(value: number): string {
  if (value >= GIB) return `${(value / GIB).toFixed(2)} GiB`;
  if (value >= MIB) return `${(value / MIB).toFixed(1)} MiB`;
  if (value >= KIB) return `${(value / KIB).toFixed(1)} KiB`;
  return `${value} B`;
}

/** A duration: `0.8 s`, `1 min 05 s`, `2 h 03 min`. */
export function seconds(value: number): string {
  if (value < 10) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${pad(whole % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${pad(minutes % 60)} min`;
}

/** A fraction as a percentage; whole numbers stay whole. */
export function percent(fraction: number): string {
  return `${decimal(100 * fraction)} %`;
}

/** An interval of fractions in percent. */
export function interval(low: number, high: number): string {
  return `${decimal(100 * low)} – ${decimal(100 * high)} %`;
}

/** At most one decimal, none when it is zero. */
function decimal(value: number): string {
  return value.toFixed(1).replace(/\.0$/, "");
}

function pad(value: number): string {
  return String(value).padStart(2, "0");
}

/** `1 file`, `2 files`. */
export function count(n: number, one: string, many = `${one}s`): string {
  return `${n} ${n === 1 ? one : many}`;
}
