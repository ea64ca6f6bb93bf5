package llmserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"inferplan/engine/llm"
	"inferplan/formats/document"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
)

// errSample is returned when a sample could not be measured. It is repeated.
var errSample = errors.New("the measurement tells nothing")

// prober sends requests to one model.
type prober struct {
	server      *llm.Server
	model       string
	runNumber   int64         // distinguishes its prompts from those of other runs, which a server may have cached
	sentPrompts int           // number of prompts sent
	chars       float64       // characters of a prompt per token
	trip        time.Duration // time of an empty request and its answer
}

// words are so common that most vocabularies have a token for each.
var words = strings.Fields("the of and to in is that for it as was with be by on not he this are at from but have an they which one you were all her she there would their we him been has when who will no more if out so up said what its about than into them can only other time new some could these two may first then do any like my now over such our man me even most made after also well many before must through years much where your way down should because long each just state those people too mr how little good world make very year still see own work men day get here old life both between being under three never know same last another while us off might great go come since against right came take used himself few house use place during without again home around small however found part school thought went say general once upon every war does got united left number course until always away water public something fact less though far put head think called set almost enough end took night yet system better four nothing told eyes city going president why days present point didn't look find asked second group later next room social business knew program give half side face young let important things")

// prompt returns a text of common words, about the given number of tokens long, whose beginning is unique, so that
// no cache of the server helps.
func (p *prober) prompt(tokens int) string {
	p.sentPrompts++
	r := seeded.New(uint64(p.runNumber), fmt.Sprintf("prompt/%d", p.sentPrompts))
	var b strings.Builder
	for length := int(math.Max(1, float64(tokens)*p.chars)); b.Len() < length; {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()[:int(math.Max(1, float64(tokens)*p.chars))]
}

// request returns a request with a new prompt of about that many tokens, for an answer of exactly that many tokens.
func (p *prober) request(tokens, answer int) *llm.Request {
	return &llm.Request{Model: p.model, Prompt: p.prompt(tokens), MaxTokens: answer, Fields: map[string]any{
		"temperature": 0, "ignore_eos": true, // vLLM, SGLang, llama-server
		"cache_prompt": false, // llama-server
	}}
}

// checkUsage returns an error if an answer cannot be measured: the server does not count tokens, it has no text, or
// more than a tenth of its prompt came from a cache.
func checkUsage(a *llm.Answer) error {
	switch {
	case !a.HasUsage || a.Usage.PromptTokens == 0:
		return fmt.Errorf("%w: the server does not tell the tokens of a prompt (stream_options.include_usage)", ErrServer)
	case a.FirstTokenTime == 0:
		return fmt.Errorf("%w: an answer without text", errSample)
	case a.Usage.CachedTokens*10 > a.Usage.PromptTokens:
		return fmt.Errorf("%w: %d of %d tokens of a prompt were in the server's cache", errSample, a.Usage.CachedTokens, a.Usage.PromptTokens)
	}
	return nil
}

// begin is called before any point is measured. It measures an empty round trip, finds out how many characters a
// token has, and returns rough costs of the server, from three short answers. The costs are a fixed time per request
// (start), a time per prompt token in nanoseconds (prompt) and a time per answer token (token).
func (p *prober) begin(ctx context.Context) (pointCosts, error) {
	var trips []time.Duration
	for range 7 {
		startedAt := time.Now()
		if err := p.server.Alive(ctx); err != nil {
			return pointCosts{}, err
		}
		trips = append(trips, time.Since(startedAt))
	}
	p.trip = report.Median(trips)

	// Begin with four characters a token, and correct that by each answer.
	p.chars = 4
	var c pointCosts
	for _, n := range []int{16, 64, 256} { // the first one loads the model if it is not loaded
		a, err := p.server.Complete(ctx, p.request(n, 8), nil)
		if err == nil {
			err = checkUsage(a)
		}
		if err != nil && !errors.Is(err, errSample) {
			return c, err
		}
		p.chars *= float64(n) / float64(max(1, a.Usage.PromptTokens))
		if tokens := a.Usage.OutputTokens - 1; tokens > 0 {
			c.token = max(time.Microsecond, (a.LastTokenTime-a.FirstTokenTime)/time.Duration(tokens))
		}
		// Without the round trip and one token, the time until the first token is that of the prompt.
		c.start, c.prompt = p.trip+time.Millisecond, float64(max(0, a.FirstTokenTime-p.trip-c.token))/float64(max(1, a.Usage.PromptTokens))
	}
	if c.token == 0 {
		return c, fmt.Errorf("%w: answers of 8 tokens came in one piece", ErrServer)
	}
	return c, nil
}

// sample measures a point (a kind of sample with numbers of sequences and tokens) once at the server.
func (p *prober) sample(ctx context.Context, point Point) (Sample, error) {
	switch point.Kind {
	case prefill:
		return p.prefill(ctx, point)
	case decode:
		return p.decode(ctx, point)
	}
	return p.sampleBeside(ctx, point)
}

// prefill measures a prompt alone: the time until its first token, without an empty round trip.
func (p *prober) prefill(ctx context.Context, point Point) (Sample, error) {
	a, err := p.server.Complete(ctx, p.request(point.Prompt, 2), nil)
	if err == nil {
		err = checkUsage(a)
	}
	if err != nil {
		return Sample{}, err
	}
	if a.FirstTokenTime <= p.trip {
		return Sample{}, fmt.Errorf("%w: a first token after %v, sooner than an empty round trip", errSample, a.FirstTokenTime)
	}
	return Sample{TookUS: document.Micros(a.FirstTokenTime - p.trip), Prompt: a.Usage.PromptTokens, Iterations: 1, Chunks: 1}, nil
}

// tokenTimes is a sequence that decodes, with its tokens. Their times are relative to began.
type tokenTimes struct {
	began  time.Time
	tokens []llm.Token
	answer *llm.Answer
	err    error
}

// timeOf returns when token i arrived.
func (r *tokenTimes) timeOf(i int) time.Time { return r.began.Add(r.tokens[i].Elapsed) }

// decodeStream is a number of sequences that decode concurrently.
type decodeStream struct {
	list       []*tokenTimes
	ended      chan struct{}
	allStarted chan struct{} // closed when each has made a few tokens
	stop       context.CancelFunc
}

// settledTokens is the number of tokens after which a sequence counts as decoding.
const settledTokens = 5

// start sends the requests of a point's sequences, which decode concurrently. The caller waits until ended is closed.
// allStarted is closed when every sequence has made settledTokens tokens, and stop cancels all.
func (p *prober) start(ctx context.Context, point Point) *decodeStream {
	ctx, cancel := context.WithCancel(ctx)
	d := &decodeStream{ended: make(chan struct{}), allStarted: make(chan struct{}), stop: cancel}
	var wg sync.WaitGroup
	var mu sync.Mutex
	started := 0

	// Send every request. When all have made enough tokens, close all.
	for range point.Sequences {
		r := &tokenTimes{}
		d.list = append(d.list, r)
		request := p.request(point.Context, point.tokens())
		wg.Go(func() {
			r.began = time.Now()
			r.answer, r.err = p.server.Complete(ctx, request, func(t llm.Token) error {
				if r.tokens = append(r.tokens, t); len(r.tokens) == settledTokens {
					mu.Lock()
					defer mu.Unlock()
					if started++; started == point.Sequences {
						close(d.allStarted)
					}
				}
				return nil
			})
			if r.err != nil {
				cancel() // a failure of one ends the sample
			}
		})
	}

	// Close ended when every request has ended.
	go func() {
		wg.Wait()
		cancel()
		close(d.ended)
	}()
	return d
}

// failure returns why the sequences failed: the error of the one that failed by itself. The others were cancelled
// because of it. It returns nil if none failed.
func (d *decodeStream) failure() error {
	var err error
	for _, r := range d.list {
		if r.err != nil && (err == nil || errors.Is(err, context.Canceled)) {
			err = r.err
		}
	}
	return err
}

// decode measures sequences that decode together: it returns the mean time between the tokens of a sequence while
// all of them decode, and the mean context of a sequence.
func (p *prober) decode(ctx context.Context, point Point) (Sample, error) {
	d := p.start(ctx, point)
	<-d.ended
	if err := d.failure(); err != nil {
		return Sample{}, err
	}

	// Find the time in which all sequences decode.
	var windowStart, windowEnd time.Time
	for i, r := range d.list {
		if err := checkUsage(r.answer); err != nil {
			return Sample{}, err
		}
		if firstToken, lastToken := r.timeOf(0), r.timeOf(len(r.tokens)-1); i == 0 {
			windowStart, windowEnd = firstToken, lastToken
		} else if windowStart, windowEnd = latest(windowStart, firstToken), earliest(windowEnd, lastToken); !windowStart.Before(windowEnd) {
			return Sample{}, fmt.Errorf("%w: %d sequences did not decode at the same time", errNotConcurrent, point.Sequences)
		}
	}

	// Within it, count the tokens, their mean context, and the times between them.
	var tokenCount, context float64
	var gaps []time.Duration
	for _, r := range d.list {
		first := slices.IndexFunc(r.tokens, func(t llm.Token) bool { return !r.began.Add(t.Elapsed).Before(windowStart) })
		last := len(r.tokens) - 1
		for last > first && r.timeOf(last).After(windowEnd) {
			last--
		}
		n := float64(r.tokens[last].Count - r.tokens[first].Count)
		gaps = append(gaps, tokenGaps(r.tokens[first:last+1])...)
		tokenCount += n
		// Token k of an answer is made with the prompt and k-1 tokens as its context. The n tokens behind the first one
		// have this mean of k-1.
		meanAnswered := float64(r.tokens[first].Count+r.tokens[last].Count-1) / 2
		context += n * (float64(r.answer.Usage.PromptTokens) + meanAnswered)
	}

	// Refuse too short a time, and tokens that were sent in bursts.
	if tokenCount < float64(2*block*point.Sequences) || len(gaps) == 0 {
		return Sample{}, fmt.Errorf("%w: %d sequences decoded at the same time for %.0f tokens each", errNotConcurrent, point.Sequences, tokenCount/float64(point.Sequences))
	}
	if bursts(gaps) {
		return Sample{}, fmt.Errorf("%w: tokens came in bursts", errSample)
	}
	return Sample{TookUS: document.Micros(mean(gaps)), Context: math.Round(context / tokenCount), Iterations: 1}, nil
}

// block is the number of tokens over which a time per token is taken, because servers may send a few tokens at
// once.
const block = 8

// tokenGaps returns the times per token of a sequence, each over a block of at least eight tokens.
func tokenGaps(tokens []llm.Token) []time.Duration {
	var out []time.Duration
	start := 0 // the block extends from this index to i
	for i := 1; i < len(tokens); i++ {
		if n := tokens[i].Count - tokens[start].Count; n >= block {
			out = append(out, (tokens[i].Elapsed-tokens[start].Elapsed)/time.Duration(n))
			start = i
		}
	}
	return out
}

// bursts reports whether tokens came in bursts: more than a fourth of the times per token are almost zero. If this
// program waits for a CPU, the tokens that the server sent meanwhile seem to come at once.
func bursts(gaps []time.Duration) bool {
	var sum time.Duration
	for _, t := range gaps {
		sum += t
	}
	almostZero := 0
	for _, t := range gaps {
		if 20*t*time.Duration(len(gaps)) < sum { // less than a twentieth of the mean
			almostZero++
		}
	}
	return 4*almostZero > len(gaps) || sum == 0
}

// errNotConcurrent is returned when sequences did not run concurrently. If this happens repeatedly, the server runs
// fewer at once.
var errNotConcurrent = fmt.Errorf("%w: apart", errSample)

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earliest returns the earlier of two times.
func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// sampleBeside measures how a prompt slows down sequences that decode: it sends the prompt while they decode, and
// stops them after the prompt's first token. The sample has the time from the sequences' last token before the prompt
// to the token that comes with the prompt's first one.
func (p *prober) sampleBeside(ctx context.Context, point Point) (Sample, error) {
	d := p.start(ctx, point)
	defer func() { d.stop(); <-d.ended }()
	select {
	case <-d.allStarted:
	case <-d.ended:
		if err := d.failure(); err != nil {
			return Sample{}, err
		}
		return Sample{}, fmt.Errorf("%w: the sequences ended before all had begun", errNotConcurrent)
	}

	// Send the prompt, and note when its first token comes.
	sentAt := time.Now()
	var firstToken time.Time
	const tokensAfter = 3 // tokens, so that those of the same iteration have arrived
	a, err := p.server.Complete(ctx, p.request(point.Prompt, tokensAfter), func(t llm.Token) error {
		if firstToken.IsZero() {
			firstToken = sentAt.Add(t.Elapsed)
		}
		return nil
	})
	d.stop()
	<-d.ended
	if err == nil {
		err = checkUsage(a)
	}
	if err != nil {
		return Sample{}, err
	}

	// See how long the sequences were held up.
	s, err := stallTime(d.list, sentAt, firstToken)
	s.Prompt, s.Context = a.Usage.PromptTokens, s.Context+float64(point.Context)
	return s, err
}

// stallTime returns how long sequences took from their last token before a prompt was sent (at sentAt) to the one that
// came with the prompt's first token (at firstToken), as the mean over the sequences: the sample of a prompt beside
// sequences. The sample also has the number of iterations in that time (each makes one token of every sequence), of
// those that ran a chunk (a part) of the prompt, and the mean number of tokens that a sequence had answered. The caller
// adds the length of the sequences' own prompts to that.
func stallTime(list []*tokenTimes, sentAt, firstToken time.Time) (Sample, error) {
	var elapsed time.Duration
	var iterations, chunks, context float64
	for _, r := range list {
		// Find the last token before the prompt was sent, and the one closest to the prompt's first token.
		before, with := -1, -1
		for k := range r.tokens {
			if !r.timeOf(k).After(sentAt) {
				before = k
			}
			if with < 0 || r.timeOf(k).Sub(firstToken).Abs() < r.timeOf(with).Sub(firstToken).Abs() {
				with = k
			}
		}
		// Two tokens before the prompt give at least one usual gap. A sequence whose last token came before the prompt's
		// first one, and that was not cancelled, had ended by then.
		if before < 1 || with <= before || with == len(r.tokens)-1 && r.timeOf(with).Before(firstToken) && r.err == nil {
			return Sample{}, fmt.Errorf("%w: a sequence did not decode from before a prompt until its first token", errNotConcurrent)
		}

		// Sum up over the sequences.
		iterations += float64(r.tokens[with].Count - r.tokens[before].Count)
		elapsed += r.tokens[with].Elapsed - r.tokens[before].Elapsed
		chunks += float64(countSlowGaps(r.tokens[:before+1], r.tokens[before:with+1])) // an iteration with a part of the prompt takes longer
		context += float64(r.tokens[before].Count+r.tokens[with].Count-1) / 2
	}

	// Take the means.
	sequences := float64(len(list))
	n := int(math.Round(iterations / sequences))
	s := Sample{TookUS: document.Micros(float64(elapsed) / sequences), Context: math.Round(context / sequences), Iterations: n, Chunks: int(math.Round(chunks / sequences))}
	s.Chunks = min(max(1, s.Chunks), s.Iterations)
	return s, nil
}

// countSlowGaps counts the gaps between tokensDuring (the time of a prompt) that are more than 1.5 times as long as
// the median gap between tokensBefore.
func countSlowGaps(tokensBefore, tokensDuring []llm.Token) int {
	var gaps []time.Duration
	for i := 1; i < len(tokensBefore); i++ {
		gaps = append(gaps, tokensBefore[i].Elapsed-tokensBefore[i-1].Elapsed)
	}
	usual, n := report.Median(gaps), 0
	for i := 1; i < len(tokensDuring); i++ {
		if 2*(tokensDuring[i].Elapsed-tokensDuring[i-1].Elapsed) > 3*usual {
			n++
		}
	}
	return n
}

// mean returns the mean of some times.
func mean(list []time.Duration) time.Duration {
	var sum time.Duration
	for _, t := range list {
		sum += t
	}
	return sum / time.Duration(len(list))
}
