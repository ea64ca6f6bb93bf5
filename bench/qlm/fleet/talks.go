package fleet

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"inferplan/bench/qlm/instance"
	"inferplan/formats/arrivals"
	"inferplan/formats/csvfile"
	"inferplan/formats/seeded"
	"inferplan/sim/llm"
)

// Traces of conversations.
const (
	shareGPT = "ShareGPT"
	mooncake = "Mooncake"
)

// Turn is a request of a conversation. Its prompt has all earlier turns.
type Turn struct {
	Pause          time.Duration // from the arrival of the turn before; 0 if the trace does not have it
	Prompt, Output int32
}

// Talk is a conversation.
type Talk []Turn

// Longest is the most tokens that a turn of a conversation may have, with its answer.
const Longest = 30_000

// mooncakeBlock is the number of tokens of a block whose hash Mooncake's trace has. A prompt's prefix is found in whole blocks.
const mooncakeBlock = 512

// readTalks reads the conversations of the traces.
func readTalks(data string) (map[string][]Talk, error) {
	chats, err := instance.ReadRows(filepath.Join(data, "lengths/sharegpt_llama2tok_part1.csv.gz"), 1<<30)
	if err != nil {
		return nil, err
	}
	rows, found, err := readMooncake(filepath.Join(data, "traces/mooncake_fast25_conversation.csv.gz"))
	if err != nil {
		return nil, err
	}
	return map[string][]Talk{shareGPT: consecutive(chats), mooncake: byPrefix(rows, found)}, nil
}

// readMooncake returns the rows of Mooncake's trace, and by row the tokens that a cache without limit finds of the prompt.
func readMooncake(path string) (rows []llm.Request, found []int32, err error) {
	t, err := csvfile.OpenTable(path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading conversations: %w", err)
	}
	defer t.Close()
	if err := t.Require("t_s", "input_tokens", "output_tokens", "prefix_hit_tokens_infinite_cache"); err != nil {
		return nil, nil, err
	}
	err = t.EachRow(func() error {
		rows = append(rows, llm.Request{ArrivedAt: time.Duration(t.Number("t_s", 0, 1e9) * 1e9), Prompt: int32(t.WholeNumber("input_tokens", 0, math.MaxInt32)), Output: int32(t.WholeNumber("output_tokens", 0, math.MaxInt32))})
		found = append(found, int32(t.WholeNumber("prefix_hit_tokens_infinite_cache", 0, math.MaxInt32)))
		return nil
	})
	return rows, found, err
}

// consecutive returns the conversations of rows, of which those of a conversation are consecutive: a prompt that is shorter than the one
// before and its answer begins another.
func consecutive(rows []llm.Request) []Talk {
	var talks []Talk
	for i, row := range rows {
		if i == 0 || row.Prompt < rows[i-1].Prompt+rows[i-1].Output {
			talks = append(talks, nil)
		}
		last := &talks[len(talks)-1]
		*last = append(*last, Turn{Prompt: row.Prompt, Output: row.Output})
	}
	return talks
}

// byPrefix returns the conversations of rows of which the tokens are known that a cache without limit finds. A row that finds all whole blocks
// of an earlier prompt, and more than every request has, goes on with the latest such conversation. Turns longer than Longest are left out.
func byPrefix(rows []llm.Request, found []int32) []Talk {
	const system = mooncakeBlock // tokens that requests of different conversations have in common
	latest := map[int32][]int{}  // by tokens of whole blocks: conversations whose last prompt has as many
	var talks []Talk
	var arrivedAt []time.Duration // by conversation, of the last turn
	for i, row := range rows {
		if row.Prompt+row.Output > Longest || row.Output < 1 {
			continue
		}
		talk := -1
		if list := latest[found[i]]; found[i] > system && len(list) > 0 {
			talk = list[len(list)-1]
			latest[found[i]] = list[:len(list)-1]
		} else {
			talk = len(talks)
			talks, arrivedAt = append(talks, nil), append(arrivedAt, row.ArrivedAt)
		}
		talks[talk] = append(talks[talk], Turn{Pause: row.ArrivedAt - arrivedAt[talk], Prompt: row.Prompt, Output: row.Output})
		arrivedAt[talk] = row.ArrivedAt
		blocks := row.Prompt / mooncakeBlock * mooncakeBlock
		latest[blocks] = append(latest[blocks], talk)
	}
	return talks
}

const (
	// readingTime is the mean time from an answer to the next turn where the trace does not have it.
	readingTime = 30 * time.Second
	// warmUp is the time before the first request in which conversations begin of which only later turns come.
	warmUp = 10 * time.Minute
	// writingTime is the time of a token of an answer until then.
	writingTime = 40 * time.Millisecond
)

// turns returns the turns of conversations, in order of arrival: of those of the trace in turn, from the From-th on, each of one model and
// class. They begin by a Poisson process, so that about To less From turns come at the rate of the case.
func (c *Case) turns(d *Data) ([]arrivals.Request, error) {
	w, talks := c.Workload, d.Talks[c.Workload.Talks]
	if len(talks) == 0 {
		return nil, fmt.Errorf("conversations of %q: found none", w.Talks)
	}
	wanted, mean := c.To-c.From, 0.0
	for _, talk := range talks {
		mean += float64(len(talk)) / float64(len(talks))
	}
	rng := seeded.New(c.Seed, "fleet/talks")
	duration := float64(wanted) / c.RPS
	begin := -min(duration, warmUp.Seconds())
	var list []arrivals.Request
	for i := c.From; ; i++ {
		begin += rng.ExpFloat64() * mean / c.RPS
		if begin > duration {
			break
		}
		served := int32(pick(w.popularity()[:len(w.Models)], rng.Float64())*len(Classes) + pick(w.shares(), rng.Float64()))
		at := time.Duration(begin * 1e9)
		for k, turn := range talks[i%len(talks)] {
			pause := turn.Pause
			if k > 0 && pause == 0 {
				before := talks[i%len(talks)][k-1]
				pause = time.Duration(before.Output)*writingTime + time.Duration(rng.ExpFloat64()*float64(readingTime))
			}
			if at += pause; at.Seconds() > duration {
				break
			}
			if at < 0 {
				continue
			}
			list = append(list, arrivals.Request{ArrivedAt: at, Model: served, PromptTokens: turn.Prompt, OutputTokens: turn.Output, Session: int64(i) + 1})
		}
	}
	slices.SortStableFunc(list, func(a, b arrivals.Request) int { return cmp.Compare(a.ArrivedAt, b.ArrivedAt) })
	return list, nil
}
