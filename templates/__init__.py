"""The Jinja templates of job scripts: base.sh.j2 has the blocks; a site's template extends it and overrides one."""
