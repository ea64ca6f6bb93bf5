package seeded_test

import (
	"testing"

	"inferplan/formats/seeded"
)

func TestStreamsArePinned(t *testing.T) {
	for _, c := range []struct {
		seed   uint64
		stream string
		want   [3]uint64
		seedOf uint64
	}{
		{0, "", [3]uint64{0x317197857f8a47c2, 0x6ad178a9eda14404, 0x9238adee9239bcb}, 0xaf5570f5a1810b7a},
		{1, "arrivals/resnet50", [3]uint64{0x5c2d54e15c38e00a, 0x8450d2c1ae28778f, 0xef2c8ab40d56e498}, 0x42fd05c1b1e8b493},
		{1, "arrivals/resnet18", [3]uint64{0x20fcd7afdc870ae7, 0x521dc09272460a5d, 0x5b8f7ecf74923bdc}, 0x4b3304c16a530797},
		{2, "arrivals/resnet50", [3]uint64{0xc57937dfe9274581, 0x34aea405793d883d, 0x2b3e78f837830cb3}, 0xc8f1e0651759b00c},
	} {
		r := seeded.New(c.seed, c.stream)
		got := [3]uint64{r.Uint64(), r.Uint64(), r.Uint64()}
		if s := seeded.Seed(c.seed, c.stream); got != c.want || s != c.seedOf {
			t.Errorf("seed %d, stream %q: got %#x and derived seed %#x, want %#x and %#x", c.seed, c.stream, got, s, c.want, c.seedOf)
		}
	}
}
