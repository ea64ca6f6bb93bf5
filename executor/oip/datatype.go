package oip

// Datatype is the element type of a tensor. The zero value is no datatype.
type Datatype uint8

// The datatypes of the protocol. BF16 is an addition of Triton's and is only sent as raw bytes. An element of Bytes
// is a 4-byte little-endian length followed by that many bytes, so it has no fixed size.
const (
	Bool Datatype = iota + 1
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	FP16
	FP32
	FP64
	Bytes
	BF16
)

var datatypes = [...]struct {
	name string
	size int
}{
	Bool: {"BOOL", 1}, Uint8: {"UINT8", 1}, Uint16: {"UINT16", 2}, Uint32: {"UINT32", 4}, Uint64: {"UINT64", 8},
	Int8: {"INT8", 1}, Int16: {"INT16", 2}, Int32: {"INT32", 4}, Int64: {"INT64", 8},
	FP16: {"FP16", 2}, FP32: {"FP32", 4}, FP64: {"FP64", 8}, Bytes: {"BYTES", 0}, BF16: {"BF16", 2},
}

// String returns the protocol's name of the datatype, such as FP32.
func (d Datatype) String() string {
	if d == 0 || int(d) >= len(datatypes) {
		return "unknown"
	}
	return datatypes[d].name
}

// Size returns the number of bytes of one element. It is 0 for Bytes.
func (d Datatype) Size() int {
	if int(d) >= len(datatypes) {
		return 0
	}
	return datatypes[d].size
}

// ParseDatatype returns the datatype with the protocol's name, which is case-sensitive, and whether there is one.
func ParseDatatype(name string) (Datatype, bool) { return parseDatatype([]byte(name)) }

// parseDatatype returns the datatype with the protocol's name, such as FP32, or false if there is none.
func parseDatatype(name []byte) (Datatype, bool) {
	for d := Bool; int(d) < len(datatypes); d++ {
		if datatypes[d].name == string(name) {
			return d, true
		}
	}
	return 0, false
}
