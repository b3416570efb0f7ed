package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// JSON writes a message as protobuf's JSON: lowerCamelCase names, 64-bit numbers as strings, zero values and empty lists
// present, two spaces of indentation. The same message always gives the same bytes, and every byte above 0x7e that does
// not print is escaped.
func JSON(w io.Writer, message proto.Message) error {
	document, err := encode(message)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, escape(document, `\`), "", "  "); err != nil {
		return fmt.Errorf("indenting JSON: %w", err)
	}
	out.WriteByte('\n')
	return write(w, out.Bytes())
}

// JSONLine writes the same document on one line, for a stream of them.
func JSONLine(w io.Writer, message proto.Message) error {
	document, err := encode(message)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Compact(&out, escape(document, `\`)); err != nil {
		return fmt.Errorf("compacting JSON: %w", err)
	}
	out.WriteByte('\n')
	return write(w, out.Bytes())
}

// YAML writes what JSON writes, as YAML with sorted keys. YAML leaves characters that do not print as they are, so that
// such a character reads as the six characters \uXXXX here.
func YAML(w io.Writer, message proto.Message) error {
	document, err := encode(message)
	if err != nil {
		return err
	}
	out, err := yaml.JSONToYAML(escape(document, `\\`))
	if err != nil {
		return fmt.Errorf("turning JSON into YAML: %w", err)
	}
	return write(w, out)
}

func encode(message proto.Message) ([]byte, error) {
	document, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("encoding as JSON: %w", err)
	}
	return document, nil
}

// escape writes what JSON allows raw and a terminal may obey: DEL, C1 controls, and format characters of Unicode. They can
// only stand inside strings. backslash is what the escape begins with.
func escape(document []byte, backslash string) []byte {
	out := make([]byte, 0, len(document))
	for len(document) > 0 {
		r, size := utf8.DecodeRune(document)
		switch {
		case r < 0x7f || unicode.IsPrint(r):
			out = append(out, document[:size]...)
		case r > 0xffff:
			// JSON has no escape beyond the basic plane but a pair of surrogates.
			r -= 0x10000
			out = fmt.Appendf(out, `%su%04x%su%04x`, backslash, 0xd800+r>>10, backslash, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `%su%04x`, backslash, r)
		}
		document = document[size:]
	}
	return out
}

func write(w io.Writer, document []byte) error {
	if _, err := w.Write(document); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
