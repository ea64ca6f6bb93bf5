package requestlog

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
)

// Request is a request that was recorded.
type Request struct {
	ArrivedAt    time.Duration // since the first request
	Model, Class string        // empty if they are not known
	Session      string
	Prompt       int // tokens; 0 if the file has none
	Output       int
	CachedTokens int // tokens of the prompt that were sent before; -1 if that is not known
}

// Log is a file of requests.
type Log struct {
	Format    string // the name of the tool's file
	Requests  []Request
	HasTokens bool
	IsDrawn   bool     // the file has rates, at which requests were drawn
	Notes     []string // what was left out or drawn
}

// Options say how files are read.
type Options struct {
	// Model is the model that all requests ask for. If it is empty, the file says it: a field, a label, or the path of an
	// HTTP request.
	Model string
	// Renamed has the name that a model gets in place of the one in the file.
	Renamed map[string]string
	// Path is what the path of an HTTP request must match; its first group is the name of the model. If it is nil, it is
	// DefaultPath or, with a Model, any path.
	Path *regexp.Regexp
	// CV is the coefficient of variation of gaps within an interval of rates; 1 is a Poisson process.
	CV    float64
	Scale float64 // multiplies rates; 0 is 1
	Seed  uint64  // of what is drawn: times within a second or an interval

	// limits bound what a file may make; nil is defaultLimits.
	limits *limits
}

// NameOf returns the name of the model that a request asks for. name is what the file says, which may be empty.
func (o *Options) NameOf(name string) string {
	name = cmp.Or(o.Model, name)
	return cmp.Or(o.Renamed[name], name)
}

// DefaultPath matches the paths under which models are served: the Open Inference Protocol, TensorFlow Serving,
// TorchServe, SageMaker and Azure OpenAI.
const DefaultPath = `/v[12]/models/([^/:?]+)(?:/versions/[^/?]+)?(?:/infer|/generate|/generate_stream|:predict)|/predictions/([^/?]+)|/endpoints/([^/?]+)/invocations|/openai/deployments/([^/?]+)/`

var defaultPath = regexp.MustCompile(DefaultPath)

// limits bound what a file may make, which is held in memory.
type limits struct {
	requests int
	steps    int64 // from the first value of a counter to the last
}

var defaultLimits = limits{requests: 10_000_000, steps: 1 << 20}

// ReadFiles reads files of requests of another tool, such as the parts of a log that was rotated. It returns nil if the
// first is none that is known.
func ReadFiles(paths []string, o Options) (*Log, error) {
	b := newBuilder(o)
	for i, path := range paths {
		f, err := csvfile.Open(path)
		if err != nil {
			return nil, fmt.Errorf("reading requests: %w", err)
		}
		isKnown, err := b.addFile(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if !isKnown && i == 0 {
			return nil, nil
		}
		if !isKnown {
			return nil, &document.Error{File: path, Found: "another file than " + paths[0], Expected: b.log.Format, Hint: "files of one tool are read together"}
		}
	}
	return b.finish(paths[0])
}

// headBytes is the number of bytes of a file that are looked at, unless its first line is longer.
const headBytes = 1 << 16

// byteOrderMark is put before a text in UTF-8 by some tools.
var byteOrderMark = []byte("\ufeff")

// Read reads a file of requests of another tool. It returns nil if the file is none that is known; f has then lost
// nothing.
func Read(f *csvfile.File, o Options) (*Log, error) {
	b := newBuilder(o)
	if isKnown, err := b.addFile(f); !isKnown || err != nil {
		return nil, err
	}
	return b.finish(f.Name)
}

// builder collects the requests of files.
type builder struct {
	layout  *layout // of the first file
	options Options
	log     *Log
	times   []time.Time // of the requests

	cache         prefixCache
	lastOfSession map[string]time.Time

	unreadableLines, otherRecords, otherPaths int // what was left out
}

func newBuilder(o Options) *builder {
	o.limits = cmp.Or(o.limits, &defaultLimits)
	return &builder{options: o, log: &Log{}, lastOfSession: map[string]time.Time{}}
}

// addFile adds the requests of a file. It returns false if the file is none that is known, or another than the first.
func (b *builder) addFile(f *csvfile.File) (isKnown bool, err error) {
	head, _ := f.Peek(headBytes)
	if len(head) == headBytes && bytes.HasPrefix(bytes.TrimPrefix(head, byteOrderMark), []byte("{")) && !isPrometheus(head) && !bytes.Contains(head, []byte("\n")) {
		f.Reader = bufio.NewReaderSize(f.Reader, maxLine) // one JSON object is longer than a head
		head, _ = f.Peek(maxLine)
	}
	l, isQuery := findLayout(head), isPrometheus(head)
	if l == nil && !isQuery || b.log.Format != "" && (isQuery || l != b.layout) {
		return false, nil
	}
	if bytes.HasPrefix(head, byteOrderMark) {
		_, _ = f.Discard(len(byteOrderMark)) // it is in the buffer
	}
	if isQuery {
		b.log, err = readPrometheus(f, b.options)
		return true, err
	}
	b.layout, b.log.Format = l, l.name
	unreadable, err := eachRecord(f, l, b.add)
	b.unreadableLines += unreadable
	return true, err
}

// finish returns the requests of all files. name is that of the first, for errors.
func (b *builder) finish(name string) (*Log, error) {
	if b.layout != nil {
		b.note(b.unreadableLines, "line", "that could not be read")
		b.note(b.otherRecords, "record", "that are no requests, failed, or were refused as wrong")
		b.note(b.otherPaths, "request", "whose path names no model")
		if len(b.log.Requests) == 0 {
			return nil, &document.Error{File: name, Found: b.layout.name + " without a request", Expected: "at least one", Hint: strings.Join(b.log.Notes, "; ")}
		}
		b.order(seeded.New(b.options.Seed, "requestlog"))
	}
	for i := range b.log.Requests {
		b.log.Requests[i].Model = b.options.NameOf(b.log.Requests[i].Model)
	}
	return b.log, nil
}

// note notes that n records were left out, unless there were none.
func (b *builder) note(n int, noun, which string) {
	if n > 0 {
		b.log.Notes = append(b.log.Notes, fmt.Sprintf("left out %s %s", document.CountOf(n, noun), which))
	}
}

// add adds the request of a record, unless it is left out.
func (b *builder) add(r *record) error {
	l := b.layout
	if l.isRequest != nil && !l.isRequest(r) {
		b.otherRecords++
		return nil
	}
	q := Request{CachedTokens: -1}
	var isNamed bool
	if q.Model, isNamed = b.model(r); !isNamed {
		b.otherPaths++
		return nil
	}
	q.Class, _ = r.text(l.class)
	q.Session, _ = r.text(l.session)

	// Read the tokens. A request without a prompt is none.
	var hasPrompt bool
	var err error
	if q.Prompt, hasPrompt, err = r.tokens(l.prompt); err == nil {
		q.Output, _, err = r.tokens(l.output)
	}
	if err != nil {
		return err
	}
	if l.prompt != "" && (!hasPrompt || q.Prompt == 0) {
		b.otherRecords++
		return nil
	}
	if err := b.setCached(r, &q); err != nil {
		return err
	}

	// Read the time. One that the file leaves out follows the request before in its session.
	at, err := b.time(r, q.Session)
	if err != nil {
		return err
	}
	if q.Session != "" {
		b.lastOfSession[q.Session] = at
	}
	b.log.HasTokens = b.log.HasTokens || hasPrompt
	b.log.Requests, b.times = append(b.log.Requests, q), append(b.times, at)
	if len(b.log.Requests) > b.options.limits.requests {
		return r.fail("", fmt.Sprintf("more than %d requests", b.options.limits.requests), "a part of the file")
	}
	return nil
}

// setCached sets how many tokens of the prompt were sent before, if the file tells it: as a number, by the hashes of
// blocks, or as the length of a prefix in front of the prompt.
func (b *builder) setCached(r *record, q *Request) error {
	if n, ok, err := r.tokens(b.layout.cached); err != nil {
		return err
	} else if ok {
		q.CachedTokens = min(n, q.Prompt)
	}
	if b.layout.hashes != "" {
		if n, ok := b.cache.cachedTokens(r.find(b.layout.hashes), q.Prompt); ok {
			q.CachedTokens = n
		}
	}
	n, ok, err := r.tokens(b.layout.prefix)
	if ok && n > 0 {
		q.Prompt, q.CachedTokens = q.Prompt+n, n
	}
	return err
}

// model returns the model that a record asks for, and whether its request counts.
func (b *builder) model(r *record) (string, bool) {
	model, _ := r.text(b.layout.model)
	if b.layout.path != "" {
		path, _ := r.text(b.layout.path)
		pattern := b.options.Path
		if pattern == nil && b.options.Model != "" {
			return b.options.Model, true
		}
		if pattern == nil {
			pattern = defaultPath
		}
		groups := pattern.FindStringSubmatch(path)
		if groups == nil {
			return "", false
		}
		model = cmp.Or(groups[1:]...)
		if name, err := url.PathUnescape(model); err == nil {
			model = name
		}
		if model == "" && b.options.Model == "" {
			return "", false
		}
	}
	return cmp.Or(b.options.Model, model), true
}

// time returns when the request of a record came.
func (b *builder) time(r *record, session string) (time.Time, error) {
	text, ok := r.text(b.layout.time)
	if ok {
		at, err := b.layout.parseTime(text)
		if err != nil {
			return at, r.fail(b.layout.time, csvfile.Quote(text), "a time as in "+b.layout.name)
		}
		return at, nil
	}
	before, follows := b.lastOfSession[session]
	delay, hasDelay := r.text(b.layout.delay)
	if !hasDelay || session == "" || !follows {
		return time.Time{}, r.fail(b.layout.time, "no time", "one, or a delay after another request of the session")
	}
	after, err := b.layout.parseTime(delay)
	if err != nil {
		return after, r.fail(b.layout.delay, csvfile.Quote(delay), "a time in milliseconds")
	}
	return before.Add(after.Sub(time.Unix(0, 0))), nil
}

// order sorts the requests by time, and makes times relative to the first. If all times are whole seconds, and some
// seconds have several requests, these are spread within their second.
func (b *builder) order(rng *rand.Rand) {
	b.spreadSeconds(rng)
	indexes := make([]int, len(b.times))
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortStableFunc(indexes, func(i, j int) int { return b.times[i].Compare(b.times[j]) })
	requests := make([]Request, len(indexes))
	for k, i := range indexes {
		requests[k] = b.log.Requests[i]
		requests[k].ArrivedAt = b.times[i].Sub(b.times[indexes[0]])
	}
	b.log.Requests = requests
}

// spreadSeconds adds a random part of a second to each time, if all are whole seconds and some are equal.
func (b *builder) spreadSeconds(rng *rand.Rand) {
	seconds, hasEqual := map[int64]bool{}, false
	for _, at := range b.times {
		if at.Nanosecond() != 0 {
			return
		}
		hasEqual = hasEqual || seconds[at.Unix()]
		seconds[at.Unix()] = true
	}
	if !hasEqual {
		return
	}
	for i := range b.times {
		b.times[i] = b.times[i].Add(time.Duration(rng.Int64N(int64(time.Second/time.Microsecond))) * time.Microsecond)
	}
	b.log.Notes = append(b.log.Notes, "times are whole seconds: requests were spread within them")
}

// Models returns the names of the models that requests ask for, in order of appearance. An empty name is a model that
// the file does not tell.
func (l *Log) Models() []string {
	var names []string
	seen := map[string]bool{}
	for i := range l.Requests {
		if name := l.Requests[i].Model; !seen[name] {
			seen[name], names = true, append(names, name)
		}
	}
	return names
}
