package tasks

import (
	"bytes"
	"testing"
)

func TestItemOf(t *testing.T) {
	made := []byte{1, 2, 3, 4, 5, 6}
	for _, c := range []struct {
		size int
		item int64
		want []byte
	}{{2, 0, made[:2]}, {2, 2, made[4:]}, {2, 3, nil}, {2, -1, nil}, {4, 0, nil}, {0, 0, nil}, {6, 0, made}} {
		if got := itemOf(made, c.size, c.item); !bytes.Equal(got, c.want) {
			t.Errorf("item %d of %d bytes: %v, expected %v", c.item, c.size, got, c.want)
		}
	}
}
