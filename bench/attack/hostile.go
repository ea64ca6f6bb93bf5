package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// repeated returns a head, a part as often as it fits into n bytes, and a tail.
func repeated(parts [3]string, n int) string {
	return parts[0] + strings.Repeat(parts[1], max(n/len(parts[1]), 1)) + parts[2]
}

// hostileBodies are inputs that keep decoders busy for long, if they do more for a byte than
// read it: each of about n bytes.
func hostileBodies(n int) (out []restRequest) {
	add := func(body string) {
		out = append(out, restRequest{"POST", "/v2/models/m/infer", [][2]string{{"Host", "127.0.0.1"}, {"Content-Type", "application/json"}, {"Content-Length", strconv.Itoa(len(body))}}, []byte(body)})
	}
	many := func(head, part, tail string) string { return repeated([3]string{head, part, tail}, n) }
	named := func(head, format, tail string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String() + tail
	}
	tensor := `{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}`
	add(named(`{"parameters":{"a":0`, `,"%d":1`, `},"inputs":[`+tensor+`]}`))
	add(named(`{"inputs":[`+tensor+`],"outputs":[{"name":"y","parameters":{"a":0`, `,"%d":1`, `}}]}`))
	add(many(`{"inputs":[`, tensor+",", tensor+`]}`))
	add(many(`{"inputs":[`+tensor+`],"outputs":[`, `{"name":"y"},`, `{"name":"y"}]}`))
	add(many(``, "[", ""))
	add(many(`{"inputs":`, `[`, ``))
	add(many(`{"inputs":`, `{"a":`, ``))
	add(many(`{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1`, ",1", `]}]}`))
	add(many(`{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[`, "[", `]}]}`))
	add(many(`{"inputs":[{"data":[1`, ",1", `],"name":"x","shape":[1,4],"datatype":"FP32"}]}`))
	add(many(`{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[0.`, "1234567890", `,1,2,3]}]}`))
	add(many(`{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1e`, "9", `,1,2,3]}]}`))
	add(many(`{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[`, "1.7976931348623157e+308,", `1]}]}`))
	add(many(`{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[`, "2.2250738585072011e-308,", `1]}]}`))
	add(many(`{"inputs":[{"name":"x","shape":[1`, ",1", `],"datatype":"FP32","data":[1]}]}`))
	add(many(`{"id":"`, `\u00e9\ud83d\ude00`, `","inputs":[`+tensor+`]}`))
	add(many(`{"`, `\n`, `":1}`))
	add(many(`{"inputs":[{"name":"`, "x", `"}]}`))
	add(many(" ", " \n\t\r", "{"))
	add(fmt.Sprintf(`{"inputs":[{"name":"x","shape":[%d,4],"datatype":"FP32","data":[1%s]}]}`, n/8, strings.Repeat(",1", n/2)))
	return out
}

// hostileMessages are the same of gRPC.
func hostileMessages(n int) (out []call) {
	method := callSeeds()[0].headers
	add := func(message []byte) { out = append(out, call{headers: method, length: -1, message: message}) }
	field := func(b []byte, number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), value)
	}
	repeat := func(part []byte) []byte { return bytes.Repeat(part, max(n/len(part), 1)) }
	const modelName, inputs, outputs, params = 1, 5, 6, 4
	model := field(nil, modelName, []byte("m"))
	input := func(contents []byte) []byte {
		t := field(field(nil, 1, []byte("x")), 2, []byte("FP32"))
		return append(protowire.AppendBytes(protowire.AppendTag(t, 3, protowire.BytesType), []byte{1, 4}), contents...)
	}
	pieces := repeat(field(nil, 5, field(nil, 6, make([]byte, 40))))
	add(append(model, field(nil, inputs, input(pieces))...))
	add(append(model, field(nil, inputs, input(field(nil, 5, repeat(protowire.AppendFixed32(protowire.AppendTag(nil, 6, protowire.Fixed32Type), 1)))))...))
	add(append(model, field(nil, inputs, input(field(nil, 5, field(nil, 3, repeat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})))))...))
	add(append(model, field(nil, inputs, input(field(nil, 5, repeat(field(nil, 8, nil)))))...))
	add(append(model, repeat(field(nil, inputs, nil))...))
	add(append(model, repeat(field(nil, outputs, nil))...))
	add(append(model, repeat(field(nil, 7, nil))...))
	add(append(model, repeat(field(nil, 15, nil))...))
	add(repeat(field(nil, modelName, []byte("m"))))
	add(append(model, field(nil, inputs, input(field(nil, 3, repeat([]byte{1}))))...))
	add(append(model, field(nil, inputs, field(nil, 1, repeat([]byte{'x'})))...))
	var parameters []byte
	for i := 0; len(parameters) < n; i++ {
		parameters = field(parameters, params, field(field(nil, 1, strconv.AppendInt(nil, int64(i), 10)), 2, []byte{16, 1}))
	}
	add(append(model, parameters...))
	add(repeat([]byte{0x0b})) // groups that never end
	return out
}
