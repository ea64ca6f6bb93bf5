package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// row is a request of a trace.
type row struct {
	at             time.Duration
	model          string
	prompt, output int
}

// bursts are requests for both models at once, again and again, each burst once the one
// before is over for sure. A burst is there before a model that its first request asks
// for can be. What is served next then hangs on no short time.
func bursts(n int, gap time.Duration) (out []row) {
	patterns := []string{"abaababb", "baabbaba", "aabbabab"}
	for i := range n {
		for k, m := range patterns[i%len(patterns)] {
			out = append(out, row{time.Second/2 + time.Duration(i)*gap + time.Duration(k)*10*time.Millisecond, names[m-'a'], 10 + 3*k, 120 + 8*((i+k)%4)})
		}
	}
	return out
}

// random are requests at exponential gaps.
func random(n int, mean time.Duration, seed uint64) (out []row) {
	rng := rand.New(rand.NewPCG(seed, 1))
	at := time.Second / 2
	for range n {
		at += time.Duration(rng.ExpFloat64() * float64(mean))
		out = append(out, row{at, names[rng.IntN(2)], 10 + rng.IntN(30), 16 + rng.IntN(64)})
	}
	return out
}

func writeTrace(path string, rows []row) error {
	var b bytes.Buffer
	b.WriteString("t_us,model,prompt_tokens,output_tokens\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "%d,%s,%d,%d\n", r.at.Microseconds(), r.model, r.prompt, r.output)
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// work is how long the requests of a trace take, by what the plan says.
func (p *planned) work(rows []row) (sum time.Duration) {
	for _, r := range rows {
		sum += p.took(r)
	}
	return sum
}
