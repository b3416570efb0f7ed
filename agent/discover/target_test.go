package discover

import "testing"

func TestParse(t *testing.T) {
	for text, literal := range map[string]string{
		"offramp-aggregator:8443":                            "",
		"offramp-aggregator-replicas.offramp.svc:8443":       "",
		"offramp-aggregator.offramp.svc.cluster.local.:8443": "",
		"Aggregator_1.example.org:1":                         "",
		"10.0.0.5:8443":                                      "10.0.0.5:8443",
		"[fd00::5]:8443":                                     "[fd00::5]:8443",
		"[fd00:0::5]:65535":                                  "[fd00::5]:65535",
		"[::ffff:10.0.0.5]:8443":                             "10.0.0.5:8443",
		"[fe80::1%eth0]:8443":                                "[fe80::1%eth0]:8443",
		"a:1":                                                "",
		"1.example.org:8443":                                 "",
	} {
		target, err := Parse(text)
		got, isLiteral := target.literal()
		if err != nil || isLiteral != (literal != "") || isLiteral && got != literal {
			t.Errorf("%s: %q, %v, %v", text, got, isLiteral, err)
		}
		if target.String() != text {
			t.Errorf("%s became %s", text, target)
		}
	}
	for _, text := range []string{
		"", ":", ":8443", "a", "a:", "a:0", "a:65536", "a:-1", "a:https", "a:8443:1", "fd00::5:8443", "http://a:8443", "a b:8443", "a/b:8443",
		"10.0.0:8443", "10.0.0.256:8443", "0x7f000001:8443", "0.0.0.0:8443", "[::]:8443", "224.0.0.1:8443", "[ff02::1]:8443", "-a:8443", "a..b:8443", ".:8443", "ä:8443",
	} {
		if target, err := Parse(text); err == nil {
			t.Errorf("%q was taken for %v", text, target)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"a:1", "10.0.0.5:8443", "[fd00::5%1]:8443", "a..b:0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		target, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(target.String()); err != nil || again != target {
			t.Errorf("%q became %q, and that %v (%v)", text, target, again, err)
		}
	})
}
