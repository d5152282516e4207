// Creates new functions all the time, so that the compiler always has work; and garbage.
function work(round) {
  const f = new Function('a', `let s = ${round}; for (let i = 0; i < 20000; i++) s = (s * 31 + a + i) % 1000003; return s;`);
  const kept = [];
  for (let i = 0; i < 20; i++) kept.push({ value: f(i), text: 'round ' + round + ' ' + i });
  return JSON.stringify(kept).length;
}
for (let round = 0; ; round++) work(round % 5000);
