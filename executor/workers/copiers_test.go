package workers

import (
	"bytes"
	"testing"
)

// Whoever copies, wait returns when everything is there.
func TestWaitReturnsWhenAllCopiesAreDone(t *testing.T) {
	src := bytes.Repeat([]byte("0123456789abcdef"), 3*minHelperBytes/16)
	for _, n := range []int{0, 1, 3} {
		p := newCopiers(n)
		dst := make([]byte, 8*len(src))
		var small [16]byte
		for range 4 {
			clear(dst)
			for k := range 8 {
				p.copy(dst[k*len(src):(k+1)*len(src)], src)
			}
			p.copy(small[:], src[:len(small)])
			p.wait()
			if !bytes.Equal(dst, bytes.Repeat(src, 8)) || !bytes.Equal(small[:], src[:len(small)]) {
				t.Fatalf("%d helpers: not all was copied", n)
			}
		}
		p.close()
	}
}

func BenchmarkCopiers(b *testing.B) {
	src := make([]byte, 600<<10)
	dst := make([]byte, 8*len(src))
	for _, n := range []int{0, 1} {
		b.Run(map[int]string{0: "alone", 1: "one helper"}[n], func(b *testing.B) {
			p := newCopiers(n)
			defer p.close()
			b.SetBytes(int64(len(dst)))
			b.ReportAllocs()
			for b.Loop() {
				for k := range 8 {
					p.copy(dst[k*len(src):(k+1)*len(src)], src)
				}
				p.wait()
			}
		})
	}
}
