package engine

import (
	"slices"
	"testing"
)

func TestCopyCorner(t *testing.T) {
	short := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12} // 2x3x2
	long := make([]byte, 2*5*2)
	CopyCorner(long, []int64{2, 5, 2}, short, []int64{2, 3, 2}, 1)
	if want := []byte{1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0}; !slices.Equal(long, want) {
		t.Errorf("filled up to %v, want %v", long, want)
	}
	CopyCorner(long, []int64{2, 3, 2}, long, []int64{2, 5, 2}, 1)
	if !slices.Equal(long[:12], short) {
		t.Errorf("cut to %v, want %v", long[:12], short)
	}
	grid := make([]byte, 3*4*2)
	CopyCorner(grid, []int64{3, 4}, []byte{1, 0, 2, 0, 3, 0, 4, 0}, []int64{2, 2}, 2)
	if want := []byte{1, 0, 2, 0, 0, 0, 0, 0, 3, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}; !slices.Equal(grid, want) {
		t.Errorf("two dimensions: %v, want %v", grid, want)
	}
}
