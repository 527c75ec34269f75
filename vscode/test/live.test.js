"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");
const { Live, pause } = require("../src/live");

const seen = (n) => ({ state: "seen", n });

test("looks are closer together while the view or a session is watched", () => {
  const now = { visible: false, debugging: false, focused: true };
  assert.equal(pause(now), 5000);
  assert.equal(pause({ ...now, visible: true }), 2000);
  assert.equal(pause({ ...now, visible: true, focused: false }), 15000);
  assert.equal(pause({ ...now, debugging: true, focused: false }), 2000);
});

test("it looks again and again, and tells what it saw", async (t) => {
  let looks = 0;
  const told = [];
  const live = await new Promise((resolve) => {
    const made = new Live(
      async () => seen((looks += 1)),
      ({ n }) => told.push(n) === 3 && resolve(made),
      () => 1,
    );
    t.after(() => made.dispose());
    void made.now();
  });
  live.dispose();
  assert.deepEqual(told, [1, 2, 3]);
});

for (const way of ["now", "soon"]) {
  test(`never two looks at once; one that was asked for meanwhile (${way}) follows`, async (t) => {
    let under = 0;
    let looks = 0;
    const release = [];
    const live = new Live(
      async () => {
        under += 1;
        assert.equal(under, 1);
        await new Promise((resolve) => release.push(resolve));
        under -= 1;
        return seen((looks += 1));
      },
      () => {},
      () => 60_000,
    );
    t.after(() => live.dispose());
    const first = live.now();
    const second = live[way]();
    for (let round = 0; round < 100; round += 1) {
      release.shift()?.();
      await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all([first, second]);
    assert.equal(looks, 2);
  });
}

test("a look that fails is not the last", async (t) => {
  let looks = 0;
  await new Promise((resolve) => {
    const live = new Live(
      async () => {
        looks += 1;
        if (looks === 1) throw new Error("a defect");
        return seen(looks);
      },
      resolve,
      () => 1,
    );
    t.after(() => live.dispose());
    live.now().catch(() => {});
  });
  assert.equal(looks, 2);
});

test("after its end nothing is looked at or told", async () => {
  const told = [];
  let finish;
  const live = new Live(
    () => new Promise((resolve) => (finish = resolve)),
    (one) => told.push(one),
    () => 1,
  );
  const looking = live.now();
  live.dispose();
  finish(seen(1));
  await looking;
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(told, []);
});
